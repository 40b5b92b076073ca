package durable

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// R25: while a file is written nothing lies beside it that a process that is killed would leave.
func TestNothingLiesBesideWhatIsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if f, err := openNameless(filepath.Dir(path), 0o600); f == nil {
		t.Skip("the file system has no files without a name", err)
	} else if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a new file, and one that is replaced
		before, err := os.ReadDir(filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		if err := WriteFile(path, 0o640, func(io.Writer) error {
			if there, err := os.ReadDir(filepath.Dir(path)); err != nil || len(there) != len(before) {
				t.Errorf("%v became %v, %v", before, there, err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o640 {
			t.Errorf("%v, %v", info, err)
		}
	}
}

// R25: also a file whose name is as long as a name may be, in whatever script.
func TestWriteFileOfALongName(t *testing.T) {
	for _, letter := range []string{"n", "é", "語"} {
		path := filepath.Join(t.TempDir(), strings.Repeat(letter, 255/len(letter)))
		if err := WriteFile(path, 0o600, func(w io.Writer) error {
			_, err := io.WriteString(w, "kept")
			return err
		}); err != nil {
			t.Error(err)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != "kept" {
			t.Errorf("%q, %v", data, err)
		}
	}
}

func TestWriteFileReplacesTheWholeFileOrNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, content := range []string{"first, and long", "second"} {
		if err := WriteFile(path, 0o640, func(w io.Writer) error {
			_, err := io.WriteString(w, content)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	failure := errors.New("failure")
	if err := WriteFile(path, 0o640, func(w io.Writer) error {
		_, _ = io.WriteString(w, "half")
		return failure
	}); !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
	data, err := os.ReadFile(path)
	if err != nil || string(data) != "second" {
		t.Errorf("got %q, %v", data, err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("temporary files are left: %v, %v", left, err)
	}
}

// The last line of a log is found, and cut if it is torn, wherever the pieces in which the file is
// read end.
func TestALogThatIsOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	log, _, err := OpenLog(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := TryOpenLog(path, 0o600); !errors.Is(err, ErrLocked) {
		t.Errorf("a log that is open is opened: %v", err)
	}
	if _, err := log.WriteString("a\nto"); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	log, last, err := TryOpenLog(path, 0o600)
	if err != nil || string(last) != "a" {
		t.Fatalf("the last line is %q, %v", last, err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOpenLog(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	for _, test := range []struct{ name, content, last, kept string }{
		{"empty", "", "", ""},
		{"one line", "a\n", "a", "a\n"},
		{"two lines", "a\nb\n", "b", "a\nb\n"},
		{"torn", "a\nb\nto", "b", "a\nb\n"},
		{"only torn", "to", "", ""},
		{"long lines", long + "\n" + long + "y\n" + long, long + "y", long + "\n" + long + "y\n"},
		{"a line of one piece", strings.Repeat("x", 4095) + "\nb\n", "b", strings.Repeat("x", 4095) + "\nb\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			if err := os.WriteFile(path, []byte(test.content), 0o600); err != nil {
				t.Fatal(err)
			}
			log, last, err := OpenLog(path, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(last, []byte(test.last)) {
				t.Errorf("the last line is %.20q (%d bytes), expected %.20q", last, len(last), test.last)
			}
			if _, err := log.WriteString("new\n"); err != nil {
				t.Fatal(err)
			}
			if err := log.Close(); err != nil {
				t.Fatal(err)
			}
			if data, err := os.ReadFile(path); err != nil || string(data) != test.kept+"new\n" {
				t.Errorf("the file ends with %.40q, %v", data[max(0, len(data)-40):], err)
			}
		})
	}
}
