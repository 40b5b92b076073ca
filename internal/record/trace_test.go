package record

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

func TestTrace(t *testing.T) {
	testenv.NeedSlow(t)
	for name, tt := range map[string]struct {
		content string
		want    []string
		skipped int
	}{
		"empty":               {"", nil, 0},
		"spans":               {"{\"a\":1}\n\n {\"b\":[2]} \r\n", []string{`{"a":1}`, `{"b":[2]}`}, 0},
		"torn last line":      {"{\"a\":1}\n{\"b\":", []string{`{"a":1}`}, 1},
		"no newline at end":   {"{\"a\":1}", []string{`{"a":1}`}, 0},
		"other things":        {"log\n[1]\n{\"a\":1}\n12\n{} {}\n", []string{`{"a":1}`}, 4},
		"larger than is read": {"{\"a\":1}\n" + strings.Repeat("x", maxTrace) + "\n{\"b\":1}\n", []string{`{"a":1}`}, 1},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, FileTrace), []byte(tt.content), 0o600); err != nil {
			t.Fatal(err)
		}
		spans, skipped, err := ReadTrace(dir)
		var got []string
		for _, s := range spans {
			got = append(got, string(s))
		}
		if err != nil || skipped != tt.skipped || strings.Join(got, "|") != strings.Join(tt.want, "|") {
			t.Errorf("%s: got %q, %d, %v", name, got, skipped, err)
		}
	}
}

func TestTraceThatIsNotThere(t *testing.T) {
	dir := t.TempDir()
	if spans, skipped, err := ReadTrace(dir); spans != nil || skipped != 0 || err != nil {
		t.Errorf("got %q, %d, %v", spans, skipped, err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, FileTrace), 0o600); err != nil {
		t.Fatal(err)
	}
	if spans, skipped, err := ReadTrace(dir); spans != nil || skipped != 0 || err != nil {
		t.Errorf("of a FIFO: got %q, %d, %v", spans, skipped, err)
	}
}
