package runner

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/store"
)

// isInput fails if an error is not about the input, or does not say so.
func isInput(t *testing.T, err error, says string) {
	t.Helper()
	var input *InputError
	if !errors.As(err, &input) || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v, expected an InputError that says %q", err, says)
	}
}

func TestFindTakesAnUniqueBeginning(t *testing.T) {
	s := openTest(t)
	for _, id := range []string{"abc", "abd", "ab"} {
		if _, err := s.st.CreateRun(t.Context(), store.Plan{RunID: id, Data: []byte(`{}`)}); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"ab": "ab", "abc": "abc"} {
		if run, err := s.Find(t.Context(), name); err != nil || run.ID != want {
			t.Errorf("%s gave %q, %v", name, run.ID, err)
		}
	}
	_, err := s.Find(t.Context(), "a")
	isInput(t, err, "3 runs begin or end with")
	_, err = s.Find(t.Context(), "x")
	isInput(t, err, "there is no run")
}

func TestDeliveriesThatAreRefused(t *testing.T) {
	s := openTest(t)
	for name, says := range map[string]string{"exec/job": "asks the source exec", "nowhere/job": "expected SOURCE/KEY", "external/": "expected SOURCE/KEY", "unknown": "not found"} {
		_, err := s.Deliver(t.Context(), name, Delivery{Payload: []byte(`1`)})
		isInput(t, err, says)
		var polled *PolledError
		if got := errors.As(err, &polled); got != (name == "exec/job") {
			t.Errorf("%s: a PolledError is %v", name, got)
		}
	}
	for name, d := range map[string]Delivery{"external/job": {Payload: []byte(`1`)}, "exec/job": {Payload: []byte(`1`), Force: true}} {
		if receipt, err := s.Deliver(t.Context(), name, d); err != nil || receipt.Disposition != Parked {
			t.Errorf("%s: %v, %v", name, receipt, err)
		}
	}
}

func TestVariables(t *testing.T) {
	t.Setenv("FROM_ENVIRONMENT", "outer")
	t.Setenv("PASSED", "passed")
	file := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(file, []byte("# comment\nexport QUOTED='a b'\n\nPLAIN=1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	v, err := ReadVariables([]string{"PASSED"}, []string{file})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"QUOTED": "a b", "PLAIN": "1", "PASSED": "passed", "FROM_ENVIRONMENT": "outer"} {
		if got, ok := v.resolve(name); !ok || got != want {
			t.Errorf("%s is %q, %v", name, got, ok)
		}
	}
	if _, ok := v.lookup("FROM_ENVIRONMENT"); ok {
		t.Error("a task may name a variable that was not passed")
	}
	_, err = ReadVariables([]string{"NOT_SET_ANYWHERE"}, nil)
	isInput(t, err, "is not set")
	if err := os.WriteFile(file, []byte("A=1\nnonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = ReadVariables(nil, []string{file})
	isInput(t, err, ":2:1: expected NAME=VALUE")
}
