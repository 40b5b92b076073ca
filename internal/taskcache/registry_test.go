package taskcache

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Given a registry that was had once, then it is asked each time, and what it has said is there when it
// gives no whole answer, also after that. What was never had is an error, with the reason.
func TestRegistry(t *testing.T) {
	const one, two = `[{"name": "a", "version": "1", "tasks": [{"path": "x", "git_url": "https://h/r"}]}]`, `[{"name": "b", "version": "1", "tasks": [{"path": "x", "git_url": "https://h/r"}]}]`
	answer := func(w http.ResponseWriter) { _, _ = w.Write([]byte(one)) }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w) }))
	defer server.Close()
	dir := t.TempDir()
	get := func() (name, said string, err error) {
		c := Open(dir, func(line string) { said = line })
		all, _, err := c.Registry(t.Context(), server.URL+"/registry.json")
		if err != nil {
			return "", said, err
		}
		return all[0].Name, said, nil
	}
	for _, step := range []struct {
		given  string
		answer func(http.ResponseWriter)
		name   string
		said   string
	}{
		{"the first answer", answer, "a", ""},
		{"another one", func(w http.ResponseWriter) { _, _ = w.Write([]byte(two)) }, "b", ""},
		{"half of one", func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(one))
		}, "b", "unexpected EOF"},
		{"a page to log in", func(w http.ResponseWriter) { _, _ = w.Write([]byte("<html>")) }, "b", "1:1"},
		{"nothing of it", func(w http.ResponseWriter) { _, _ = w.Write([]byte(`[{"name": "c"}]`)) }, "b", "version: missing"},
		{"an error", func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) }, "b", "502 Bad Gateway"},
	} {
		answer = step.answer
		name, said, err := get()
		if err != nil || name != step.name || !strings.Contains(said, step.said) || (said == "") != (step.said == "") {
			t.Errorf("%s: %q, said %q, %v", step.given, name, said, err)
		}
	}
	server.Close()
	if name, said, err := get(); err != nil || name != "b" || !strings.Contains(said, "connection refused") {
		t.Errorf("no server: %q, said %q, %v", name, said, err)
	}
	kept, _ := filepath.Glob(filepath.Join(dir, "registries", "*.json"))
	if len(kept) != 1 {
		t.Fatalf("kept: %v", kept)
	}
	if err := os.WriteFile(kept[0], []byte(one[:10]), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := get(); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("a torn copy: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Open(dir, nil).Registry(ctx, server.URL); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
	for address, why := range map[string]string{
		"ftp://h/registry.json": "no address of a registry", "https:///registry.json": "no address", "file:///etc/passwd": "no address",
		"https://u:p@h/registry.json": "would be written into results", "https://h/registry.json?token=x": "would be written into results",
	} {
		if _, _, err := Open(dir, nil).Registry(t.Context(), address); err == nil || !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), "u:p@") {
			t.Errorf("%s: %v", address, err)
		}
	}
}
