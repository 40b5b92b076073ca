package testenv

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Mkdir makes a folder, and those above it.
func Mkdir(t testing.TB, elem ...string) string {
	t.Helper()
	dir := filepath.Join(elem...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// ReadFile returns the content of a file.
func ReadFile(t testing.TB, elem ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// ReadLines decodes a file of JSON documents, one a line; none if there is no file.
func ReadLines[T any](t testing.TB, elem ...string) (all []T) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var one T
		if err := json.Unmarshal(line, &one); err != nil {
			t.Fatalf("%.200s: %v", line, err)
		}
		all = append(all, one)
	}
	return all
}
