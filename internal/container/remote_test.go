package container

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/evalrun/evalrun/internal/docker"
	"github.com/evalrun/evalrun/internal/fault"
)

// A daemon without space is a fault of the environment that says whose disk is full. Other errors, and a full
// disk of this machine, stay what they are.
func TestADaemonWithoutSpace(t *testing.T) {
	d := &Daemon{Client: &docker.Client{}}
	var found *fault.Fault
	full := d.fault(fmt.Errorf("put /x: %w", &docker.Error{Status: 500, Message: "write /x: no space left on device"}))
	if !errors.As(full, &found) || found.Category != fault.Setup || !strings.Contains(found.Message, "the disk of the Docker daemon at ") {
		t.Error(full)
	}
	for _, err := range []error{nil, fmt.Errorf("keep: %w", syscall.ENOSPC), &docker.Error{Status: 500, Message: "no such image"}} {
		if got := d.fault(err); got != err { //nolint:errorlint // the same one
			t.Errorf("%v became %v", err, got)
		}
	}
}

// A program in a container may print without end: what is remembered for a message is bounded.
func TestABeginningIsBounded(t *testing.T) {
	var b beginning
	for range 100 {
		if n, err := b.Write(bytes.Repeat([]byte("x"), 999)); n != 999 || err != nil {
			t.Fatal(n, err)
		}
	}
	if n := len(b.String()); n != 4000 {
		t.Errorf("%d bytes", n)
	}
}
