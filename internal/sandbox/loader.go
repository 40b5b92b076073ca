package sandbox

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// loaderOf is the dynamic loader that a program names; empty if it is static, a script or not
// there.
func loaderOf(program string) string {
	f, err := elf.Open(program)
	if err != nil {
		return ""
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			name, _ := io.ReadAll(p.Open()) // a damaged program names none
			return strings.TrimRight(string(name), "\x00")
		}
	}
	return ""
}

// loaderNote is added to a message about an init that could not be started. In an image that is
// evalrun, which is to be static.
func (c *Command) loaderNote() string {
	if !c.Config.HasImage() {
		return ""
	}
	if loader := loaderOf(c.Executable); loader != "" {
		return "; this evalrun was built with cgo and needs " + loader +
			" and a C library as new as its own, which the image may not have: build it with make, or with CGO_ENABLED=0"
	}
	return ""
}

// namingLoader adds to an error for a program that exists, and yet could not be found, the loader
// that it lacks.
func namingLoader(program string, err error) error {
	if !errors.Is(err, syscall.ENOENT) {
		return err
	}
	loader := loaderOf(program)
	if _, missing := os.Stat(loader); loader == "" || missing == nil {
		return err
	}
	return fmt.Errorf("%w: it needs %s, which is not there: the image has another C library, or none", err, loader)
}
