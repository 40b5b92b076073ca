package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

// imageSpace is a space over the root of a small image of two layers, of which the upper one may be
// changed.
func imageSpace(t testing.TB) *Config {
	t.Helper()
	testenv.Need(t, testenv.Bwrap, Available())
	testenv.Need(t, testenv.Bwrap, ImageAvailable())
	dir := t.TempDir()
	r := &Root{Lower: []string{filepath.Join(dir, "image"), testenv.SmallRoot(t)}, Upper: filepath.Join(dir, "upper"), Work: filepath.Join(dir, "work"), Merged: filepath.Join(dir, "merged")}
	for _, d := range []string{r.Lower[0], r.Upper, r.Work, r.Merged} {
		check(os.Mkdir(d, 0o755))
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(r.Work, "work"), 0o700) }) // the kernel's, if it was needed
	return &Config{Isolation: IsolationImage, Root: r}
}

// ownImage is a space over an image of its own, which may be changed.
func ownImage(t *testing.T) (space *Config, root string) {
	space = imageSpace(t)
	root = space.Root.Lower[0]
	if out, err := exec.Command("cp", "-a", space.Root.Lower[1]+"/.", root).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	space.Root.Lower = space.Root.Lower[:1]
	return space, root
}

// inImage is a shell in a space over an image.
func inImage(t *testing.T, space *Config, script string) Command {
	c := inSpace(t, space, script)
	c.Dir, c.Env = "/app", []string{"PATH=/usr/bin:/bin"}
	return c
}

// What one process has written anywhere is there for the next, and not in the image.
func TestWhatWasWrittenInAnImageIsKept(t *testing.T) {
	space := imageSpace(t)
	exit, out := run(t, inImage(t, space, "set -e; mkdir /run/d; for f in /tmp/a /opt/b /root/c /etc/d /run/d/e /bin/f /app/g; do echo $f >$f; done; rm /bin/sleep; echo $HOME; pwd"))
	if !exit.State.Success() || out != "/root\n/app\n" {
		t.Fatalf("%v, %q, %v", exit.State, out, exit.Ended)
	}
	exit, out = run(t, inImage(t, space, "cat /tmp/a /opt/b /root/c /etc/d /run/d/e /bin/f /app/g; [ ! -e /bin/sleep ]"))
	if want := "/tmp/a\n/opt/b\n/root/c\n/etc/d\n/run/d/e\n/bin/f\n/app/g\n"; !exit.State.Success() || out != want {
		t.Errorf("%v, %q", exit.State, out)
	}
	if _, err := os.Stat(filepath.Join(space.Root.Lower[1], "bin/sleep")); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(space.Root.Lower[0], "opt/b")); err == nil {
		t.Error("the image was written to")
	}
	if entries, err := os.ReadDir(space.Root.Merged); err != nil || len(entries) > 0 {
		t.Errorf("the root is still mounted: %v, %v", entries, err)
	}
}

// The users are those of the image.
func TestUsersOfAnImage(t *testing.T) {
	for _, c := range []struct{ user, want, failure string }{
		{"", "0 0 root /root", ""},
		{"root", "0 0 root /root", ""},
		{"app", "1234 1235 app /home/app", ""},
		{"1234", "1234 1235 app /home/app", ""},
		{"app:root", "1234 0 app /home/app", ""},
		{"app:77", "1234 77 app /home/app", ""},
		{"4321:1235", "4321 1235 none /", ""},
		{"nobody-here", "", `the image has no user "nobody-here" in its /etc/passwd`},
		{"app:nogroup-here", "", `the image has no group "nogroup-here"`},
	} {
		t.Run(c.user, func(t *testing.T) {
			space := imageSpace(t)
			space.User = c.user
			exit, out := run(t, inImage(t, space, `echo $(id -u) $(id -g) $(whoami 2>/dev/null || echo none) $HOME`))
			if c.failure != "" {
				if exit.Ended == nil || !strings.Contains(exit.Ended.Error(), c.failure) {
					t.Errorf("got %v, want %q", exit.Ended, c.failure)
				}
				return
			}
			if strings.Join(strings.Fields(out), " ") != c.want {
				t.Errorf("got %q (%v, %v), want %q", out, exit.State, exit.Ended, c.want)
			}
		})
	}
}

// A user of the image acts on files as that user, has its other groups, and the folders that are
// given to it.
func TestRightsOfAUserOfAnImage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("whoever is not root acts on files as one user alone")
	}
	space := imageSpace(t)
	home := t.TempDir()
	space.User, space.Own = "app", []string{"/home/own"}
	space.Binds = []Bind{{Host: home, Inside: "/home/own", Writable: true}}
	exit, out := run(t, inImage(t, space, "id -G; echo x >/home/own/x; echo out >/dev/stdout; for f in /app/no /etc/no /root/no; do if echo x 2>/dev/null >$f; then echo $f written; fi; done"))
	if !exit.State.Success() || out != "1235 77\nout\n" {
		t.Errorf("%v, %q, %v", exit.State, out, exit.Ended)
	}
	if info, err := os.Stat(filepath.Join(home, "x")); err != nil {
		t.Error(err, info)
	}
}

// What an image lacks is said.
func TestImagesThatLackSomething(t *testing.T) {
	for name, c := range map[string]struct {
		spoil   func(root string)
		user    string
		failure string
	}{
		"no shell":  {func(root string) { check(os.Remove(filepath.Join(root, "bin/sh"))) }, "", "/bin/sh"},
		"no passwd": {func(root string) { check(os.Remove(filepath.Join(root, "etc/passwd"))) }, "app", `the image has no user "app": it has no /etc/passwd`},
		"passwd is a pipe": {func(root string) {
			check(os.Remove(filepath.Join(root, "etc/passwd")))
			check(syscall.Mkfifo(filepath.Join(root, "etc/passwd"), 0o600))
		}, "app", "not a file"},
		"no numbers": {func(root string) {
			check(os.WriteFile(filepath.Join(root, "etc/passwd"), []byte("app:x:a:b::/:/bin/sh\n"), 0o644))
		}, "app", "no numbers"},
		"workdir a file": {func(root string) {
			check(os.Remove(filepath.Join(root, "app")))
			check(os.WriteFile(filepath.Join(root, "app"), nil, 0o644))
		}, "", "working directory"},
	} {
		t.Run(name, func(t *testing.T) {
			space, root := ownImage(t)
			c.spoil(root)
			space.User = c.user
			exit, out := run(t, inImage(t, space, "echo started"))
			if exit.Ended == nil || !strings.Contains(exit.Ended.Error(), c.failure) {
				t.Errorf("got %q, %v, want %q", out, exit.Ended, c.failure)
			}
		})
	}
	// Without a database root is root.
	space, root := ownImage(t)
	check(os.RemoveAll(filepath.Join(root, "etc")))
	if exit, out := run(t, inImage(t, space, "echo $HOME")); !exit.State.Success() || out != "/root\n" {
		t.Errorf("%v, %q, %v", exit.State, out, exit.Ended)
	}
}

// Links of the image, or that a process has left, lead out of the space for nobody.
func TestLinksOfAnImageLeadNowhere(t *testing.T) {
	space := imageSpace(t)
	outside, mine := t.TempDir(), t.TempDir()
	check(os.WriteFile(filepath.Join(mine, "mine"), []byte("mine"), 0o644))
	check(os.Mkdir(filepath.Join(space.Root.Lower[0], "etc"), 0o755))
	for at, to := range map[string]string{"tests": "/oldroot" + outside, "logs": "../.." + outside, "etc/resolv.conf": "../../.." + outside + "/made", "run": outside} {
		check(os.Symlink(to, filepath.Join(space.Root.Lower[0], at)))
	}
	for _, inside := range []string{"/tests", "/logs"} {
		space.Binds = append(space.Binds, Bind{Host: mine, Inside: inside, Writable: true})
	}
	if exit, out := run(t, inImage(t, space, "cat /tests/mine /logs/mine; [ -f /etc/resolv.conf ]")); !exit.State.Success() || out != "minemine" {
		t.Errorf("%v, %q, %v", exit.State, out, exit.Ended)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("outside: %v, %v", entries, err)
	}
}

// evalrun itself can see the root as a space does.
func TestOpenRoot(t *testing.T) {
	space := imageSpace(t)
	if exit, out := run(t, inImage(t, space, "rm /bin/ls; echo x >/opt/new")); !exit.State.Success() {
		t.Fatalf("%v, %q, %v", exit.State, out, exit.Ended)
	}
	dir, closeRoot, err := space.Root.Open(must(os.Executable()))
	if err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(dir + "/opt/new"); err != nil || string(data) != "x\n" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := os.Stat(dir + "/bin/ls"); err == nil {
		t.Error("what was removed is there")
	}
	check(os.WriteFile(dir+"/opt/later", []byte("later"), 0o644))
	closeRoot()
	if exit, out := run(t, inImage(t, space, "cat /opt/later /bin/sh >/dev/null; cat /opt/later")); out != "later" {
		t.Errorf("%v, %q, %v", exit.State, out, exit.Ended)
	}
}

// BenchmarkImage starts a shell that does nothing, in bwrap and over the root of an image that
// another has written to before, which is what the second rollout of an image finds. The second may
// take 50 ms longer.
func BenchmarkImage(b *testing.B) {
	image := imageSpace(b)
	for name, space := range map[string]*Config{"bwrap": {Isolation: IsolationBwrap}, "image": image} {
		b.Run(name, func(b *testing.B) {
			c := Command{Marker: "benchmark", Config: space, Path: "/bin/sh", Args: []string{"sh", "-c", "echo x >/tmp/x"}, Dir: "/", Executable: must(os.Executable())}
			for b.Loop() {
				check(os.RemoveAll(filepath.Join(image.Root.Work, "work")))
				if exit, err := Run(b.Context(), c); err != nil || !exit.State.Success() {
					b.Fatal(exit, err)
				}
			}
		})
	}
}
