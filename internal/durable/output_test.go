package durable

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

// What is not a regular file is written to and stays what it is, and of a link the target is
// replaced.
func TestOutputToALink(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.Mkdir(at("data"), 0o755), os.WriteFile(at("data/results"), []byte("old"), 0o600), os.Symlink("data/results", at("one")),
		os.Symlink("one", at("two")), os.Symlink("data/new", at("three")), os.Symlink("loop", at("loop"))); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"two": "data/results", "three": "data/new", "plain": "plain"} {
		before, _ := os.Readlink(at(name))
		if err := WriteOutput(at(name), 0o644, text("new")); err != nil {
			t.Fatal(err)
		}
		after, _ := os.Readlink(at(name))
		if got, err := os.ReadFile(at(target)); string(got) != "new" || err != nil || before != after {
			t.Errorf("%s: %q, %v; the link led to %q and leads to %q", name, got, err, before, after)
		}
	}
	if err := WriteOutput(at("loop"), 0o644, text("new")); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a loop: %v", err)
	}
}

func TestOutputToANamedPipe(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	read := make(chan string)
	go func() {
		data, _ := os.ReadFile(fifo)
		read <- string(data)
	}()
	if err := WriteOutput(fifo, 0o644, text("through")); err != nil {
		t.Fatal(err)
	}
	if got := <-read; got != "through" {
		t.Errorf("read %q", got)
	}
	if info, err := os.Lstat(fifo); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("the pipe is %v, %v", info, err)
	}
}

func TestOutputToADevice(t *testing.T) {
	link := filepath.Join(t.TempDir(), "null")
	if err := os.Symlink("/dev/null", link); err != nil {
		t.Fatal(err)
	}
	// By a link, so that without the mend it is not /dev/null itself that becomes a file.
	if err := WriteOutput(link, 0o644, text("gone")); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(link); to != "/dev/null" {
		t.Errorf("the link is gone: %v", err)
	}
	if info, err := os.Stat(link); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		t.Errorf("the device is %v, %v", info, err)
	}
}

// A stream gets all or nothing, also where there is no place for temporary files.
func TestAStreamGetsAllOrNothing(t *testing.T) {
	for name, dir := range map[string]string{"as usual": t.TempDir(), "no place": filepath.Join(t.TempDir(), "missing")} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", dir)
			var out bytes.Buffer
			broken := errors.New("broken")
			if err := WriteWhole(&out, func(w io.Writer) error { return errors.Join(text("half")(w), broken) }); !errors.Is(err, broken) || out.Len() > 0 {
				t.Errorf("%v, and it got %q", err, &out)
			}
			if err := WriteWhole(&out, text("whole")); err != nil || out.String() != "whole" {
				t.Errorf("%v, and it got %q", err, &out)
			}
		})
	}
}

// A descriptor that is a file is written to where it stands, since whoever has opened it goes on
// writing there.
func TestOutputToADescriptor(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, _ = f.WriteString("before\n")
	for _, name := range []string{"/dev/fd/", "/proc/self/fd/"} {
		if _, err := os.Stat(name); err != nil {
			continue
		}
		if err := WriteOutput(name+strconv.Itoa(int(f.Fd())), 0o644, text(name+"\n")); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = f.WriteString("after\n")
	if got, _ := os.ReadFile(f.Name()); string(got) != "before\n/dev/fd/\n/proc/self/fd/\nafter\n" {
		t.Errorf("got %q", got)
	}
}
