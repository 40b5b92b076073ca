package tasks

import "testing"

// T26: what a verifier says that lacks its tools, and what one says whose tests fail.
func TestSuspicious(t *testing.T) {
	for line, want := range map[string]bool{
		"W: Failed to fetch http://deb.debian.org/debian/dists/trixie/InRelease  Temporary failure resolving 'deb.debian.org'": true,
		"E: Unable to locate package curl": true, "curl: (6) Could not resolve host: astral.sh": true, "/tests/test.sh: line 12: uvx: command not found": true,
		"error: error sending request for url (https://pypi.org/simple/pytest/)": true, "ERROR: No matching distribution found for pytest==8.4.1": true,
		"npm error code ENOTFOUND getaddrinfo ENOTFOUND registry.npmjs.org": true,
		"FAILED test_state.py::test_hello_file_exists - AssertionError":     false, "cat: hello.txt: No such file or directory": false, "bash: frobnicate: command not found": false,
	} {
		got := Suspicious([]byte("Hit:1\n" + line + "\nlast\n"))
		if (got == line) != want || !want && got != "" {
			t.Errorf("%q: %q, want it: %v", line, got, want)
		}
	}
}
