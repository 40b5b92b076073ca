package testenv

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// rootPrograms are the programs in the root of [SmallRoot].
var rootPrograms = []string{"bash", "sh", "cat", "chmod", "echo", "env",
	"id", "ln", "ls", "mkdir", "mv", "rm", "sleep", "stat", "whoami"}

// SmallRoot is the root of a small system, as an image has one: some programs of this machine with
// their libraries, /etc/passwd with root and app (uid 1234, home /home/app), and the folders that
// every system has. It is made once for all tests, which must not change it. A test is skipped
// where there is no ldd.
func SmallRoot(t testing.TB) string {
	t.Helper()
	ldd, err := exec.LookPath("ldd")
	if err != nil {
		t.Skip("making a small root needs ldd")
	}
	cache, err := programCache()
	must(t, err)
	root := filepath.Join(cache, fmt.Sprintf("root-1-%d", os.Geteuid()))
	if _, err := os.Stat(root); err == nil {
		return root
	}
	made, err := os.MkdirTemp(cache, "root-")
	must(t, err)
	makeRoot(t, made, ldd)
	if err := os.Rename(made, root); err != nil { // another test was faster
		must(t, os.RemoveAll(made))
	}
	return root
}

func makeRoot(t testing.TB, root, ldd string) {
	must(t, os.Chmod(root, 0o755))
	for _, dir := range []string{"bin", "etc", "home/app", "lib",
		"lib64", "opt", "root", "tmp", "usr/bin", "var/tmp", "app"} {
		must(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	must(t, errors.Join(os.Chmod(filepath.Join(root, "tmp"), 0o777|os.ModeSticky),
		os.Chmod(filepath.Join(root, "var/tmp"), 0o777|os.ModeSticky), os.Chmod(filepath.Join(root, "root"), 0o700)))
	must(t, os.WriteFile(filepath.Join(root, "etc/passwd"),
		[]byte("root:x:0:0:root:/root:/bin/bash\napp:x:1234:1235::/home/app:/bin/sh\n"), 0o644))
	must(t, os.WriteFile(filepath.Join(root, "etc/group"), []byte("root:x:0:\napp:x:1235:\nextra:x:77:app\n"), 0o644))
	if os.Geteuid() == 0 {
		must(t, os.Chown(filepath.Join(root, "home/app"), 1234, 1235))
	}
	for _, name := range rootPrograms {
		path, err := exec.LookPath(name)
		must(t, err)
		real, err := filepath.EvalSymlinks(path)
		must(t, err)
		copyFile(t, real, filepath.Join(root, "bin", name))
		out, _ := exec.Command(ldd, real).Output() // a static program has none
		for _, m := range libraries.FindAllStringSubmatch(string(out), -1) {
			copyFile(t, m[1], filepath.Join(root, m[1]))
		}
	}
}

// libraries finds the paths in what ldd prints.
var libraries = regexp.MustCompile(`(?m)^\s*(?:\S+ => )?(/\S+) \(0x`)

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	if _, err := os.Stat(to); err == nil {
		return
	}
	must(t, os.MkdirAll(filepath.Dir(to), 0o755))
	in, err := os.Open(from)
	must(t, err)
	defer func() { _ = in.Close() }() // only read
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	must(t, err)
	_, err = io.Copy(out, in)
	must(t, errors.Join(err, out.Close()))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(strings.TrimSpace(err.Error()))
	}
}
