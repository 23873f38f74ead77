// SPDX-License-Identifier: MIT
int core_headers_one();
int core_headers_two();

int main() {
  return core_headers_one() + core_headers_two();
}
