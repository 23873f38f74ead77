# Every public header, by the target that owns it. Explicit, so that what is
# installed is what was meant: tests/headers/check_list.cmake fails when a header
# under include/ is missing here or one listed here is not there.

set(db_bulkhead_core_headers
  db_bulkhead/admission.hpp
  db_bulkhead/connection_lease.hpp
  db_bulkhead/connection_pool.hpp
  db_bulkhead/connector.hpp
  db_bulkhead/db_bulkhead.hpp
  db_bulkhead/deadline.hpp
  db_bulkhead/detail/active_call.hpp
  db_bulkhead/detail/admission_counts.hpp
  db_bulkhead/detail/admission_word.hpp
  db_bulkhead/detail/coarse_clock.hpp
  db_bulkhead/detail/hand_off_pace.hpp
  db_bulkhead/detail/parker.hpp
  db_bulkhead/detail/platform.hpp
  db_bulkhead/detail/pool_core.hpp
  db_bulkhead/detail/pool_counts.hpp
  db_bulkhead/detail/pool_state.hpp
  db_bulkhead/detail/pool_threads.hpp
  db_bulkhead/detail/reconnect_pace.hpp
  db_bulkhead/detail/transaction_run.hpp
  db_bulkhead/detail/wait_queue.hpp
  db_bulkhead/detail/waiter.hpp
  db_bulkhead/error.hpp
  db_bulkhead/limits.hpp
  db_bulkhead/observer.hpp
  db_bulkhead/owning_result.hpp
  db_bulkhead/permit.hpp
  db_bulkhead/pool_concept.hpp
  db_bulkhead/pool_options.hpp
  db_bulkhead/source_location.hpp
  db_bulkhead/transaction_options.hpp
  db_bulkhead/version.hpp
)

set(db_bulkhead_pqxx_headers
  db_bulkhead/pqxx.hpp
  db_bulkhead/pqxx/begin_statement.hpp
  db_bulkhead/pqxx/connect.hpp
  db_bulkhead/pqxx/connection.hpp
  db_bulkhead/pqxx/connector.hpp
  db_bulkhead/pqxx/conninfo.hpp
  db_bulkhead/pqxx/driver.hpp
  db_bulkhead/pqxx/driver_6_4.hpp
  db_bulkhead/pqxx/libpq.hpp
  db_bulkhead/pqxx/pool.hpp
  db_bulkhead/pqxx/query.hpp
  db_bulkhead/pqxx/results.hpp
  db_bulkhead/pqxx/socket.hpp
  db_bulkhead/pqxx/transaction.hpp
  db_bulkhead/pqxx/transaction_traits.hpp
  db_bulkhead/pqxx/watch.hpp
)
