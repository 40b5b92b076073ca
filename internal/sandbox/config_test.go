package sandbox

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

func TestPathsOfASpace(t *testing.T) {
	binds := []Bind{{Host: "/s/work", Inside: "/app"}, {Host: "/s/deep", Inside: "/app/data/"}, {Host: "/s/one.txt", Inside: "/tests/one.txt"}}
	process := &Config{Isolation: IsolationProcess, Binds: binds}
	bwrap := &Config{Isolation: IsolationBwrap, Binds: binds, Visible: []string{"/opt/node"}}
	for _, tt := range []struct {
		inside, process, bwrap string
	}{
		{"/app", "/s/work", "/s/work"},
		{"/app/x/../y", "/s/work/y", "/s/work/y"},
		{"/app/data", "/s/deep", "/s/deep"},
		{"/app/data/z", "/s/deep/z", "/s/deep/z"},
		{"/app/../etc/passwd", "/app/../etc/passwd", ""},
		{"/application", "/application", ""},
		{"/tests/one.txt", "/s/one.txt", "/s/one.txt"},
		{"/tests/two.txt", "/tests/two.txt", ""},
		{"/opt/node/bin", "/opt/node/bin", "/opt/node/bin"},
	} {
		if got := process.Path(tt.inside); got != tt.process {
			t.Errorf("process: Path(%s) = %s", tt.inside, got)
		}
		if got, ok := process.HostPath(tt.inside); got != tt.process || !ok {
			t.Errorf("process: HostPath(%s) = %s, %v", tt.inside, got, ok)
		}
		if got := bwrap.Path(tt.inside); got != tt.inside {
			t.Errorf("bwrap: Path(%s) = %s", tt.inside, got)
		}
		if got, ok := bwrap.HostPath(tt.inside); ok != (tt.bwrap != "") || ok && got != tt.bwrap {
			t.Errorf("bwrap: HostPath(%s) = %s, %v", tt.inside, got, ok)
		}
	}
	if got := (*Config)(nil).Path("/app"); got != "/app" {
		t.Errorf("no space: %s", got)
	}
}

func TestSpaceThatIsWrong(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing")
	for want, s := range map[string]Config{
		`isolation "chroot" is not known: use "image", "bwrap" or "process"`: {Isolation: "chroot"},
		`isolation "" is not known`:                         {},
		"bind: stat " + missing:                             {Binds: []Bind{{Host: missing, Inside: "/app"}}},
		`bind "x" must be an absolute path`:                 {Binds: []Bind{{Host: "x", Inside: "/app"}}},
		`its place inside, "app", must be`:                  {Binds: []Bind{{Host: dir, Inside: "app"}}},
		`its place inside, "/..", must be`:                  {Binds: []Bind{{Host: dir, Inside: "/.."}}},
		"/app is already the place of " + dir:               {Binds: []Bind{{Host: dir, Inside: "/app"}, {Host: dir, Inside: "/app/"}}},
		"visible path: stat " + missing:                     {Visible: []string{missing}},
		"visible path /: that would show the whole machine": {Visible: []string{"/"}},
		`hidden path "tests" must be absolute`:              {Hidden: []string{"tests"}},
		"forwarded port 70000":                              {Forwards: []Forward{{Port: 70000, Socket: dir}}},
		"forwarded port 80":                                 {Forwards: []Forward{{Port: 80, Socket: dir}, {Port: 80, Socket: dir}}},
		"forward to socket: stat " + missing:                {Forwards: []Forward{{Port: 80, Socket: missing}}},
		`user "a b"`:                                        {User: "a b"},
	} {
		if s.Isolation == "" && !strings.HasPrefix(want, "isolation") {
			s.Isolation = IsolationProcess
		}
		c := shell(t, "exit 0")
		c.Config = &s
		before := openFiles(t)
		if _, err := Start(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want %s", err, want)
		}
		if after := openFiles(t); after > before {
			t.Errorf("%s: %d files open before, %d after", want, before, after)
		}
	}
}

func TestBwrapElsewhereThanOnLinux(t *testing.T) {
	if runtime.GOOS == "linux" {
		t.Skip("this is Linux")
	}
	if err := Supported(IsolationBwrap); err == nil || !strings.Contains(err.Error(), "Linux only") {
		t.Errorf("got %v", err)
	}
}

func TestProgramIsLookedUpInTheEnvironmentOfTheProcess(t *testing.T) {
	bin := t.TempDir()
	check(os.WriteFile(filepath.Join(bin, "hello"), []byte("#!/bin/sh\necho hello from $0\n"), 0o755))
	check(os.WriteFile(filepath.Join(bin, "not-a-program"), nil, 0o644))
	for _, space := range spaces(t) {
		t.Run(space.Isolation, func(t *testing.T) {
			space.Binds = append(space.Binds, Bind{Host: bin, Inside: "/tools"})
			c := inSpace(t, space, "")
			c.Path, c.Args, c.Env = "hello", []string{"hello"}, []string{"PATH=/does/not/exist:" + space.Path("/tools") + ":/usr/bin:/bin"}
			if exit, out := run(t, c); strings.TrimSpace(out) != "hello from "+space.Path("/tools/hello") {
				t.Errorf("got %v, %q", exit, out)
			}
			c.Path = "not-a-program"
			exit, err := Run(t.Context(), c)
			if err == nil {
				err = exit.Ended
			}
			if err == nil || !strings.Contains(err.Error(), "not-a-program: file does not exist in PATH=") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// spaces are one space of each isolation that can be had here, each with an empty folder as /app.
func spaces(t *testing.T) []*Config {
	t.Helper()
	all := []*Config{{Isolation: IsolationProcess}}
	if err := Available(); err == nil {
		all = append(all, &Config{Isolation: IsolationBwrap})
	} else if testenv.Required(testenv.Bwrap) {
		t.Fatal(err)
	} else {
		t.Logf("without bwrap: %v", err)
	}
	for _, s := range all {
		s.Binds = []Bind{{Host: t.TempDir(), Inside: "/app", Writable: true}}
	}
	return all
}

// bwrapSpace is a space in bwrap with an empty folder as /app.
func bwrapSpace(t *testing.T) *Config {
	t.Helper()
	testenv.Need(t, testenv.Bwrap, Available())
	return spaces(t)[1]
}

// inSpace is a shell script that runs in a space, in its /app.
func inSpace(t *testing.T, s *Config, script string) Command {
	c := shell(t, script)
	c.Config, c.Dir, c.Executable = s, s.Path("/app"), must(os.Executable())
	c.Env = []string{"PATH=" + os.Getenv("PATH") + ":/usr/bin:/bin"}
	return c
}

// socket listens to a Unix socket in a folder whose name is short enough for one.
func socket(t *testing.T, answer func(net.Conn)) string {
	dir := must(os.MkdirTemp("", ""))
	path := filepath.Join(dir, "s")
	l := must(net.Listen("unix", path))
	t.Cleanup(func() {
		_ = l.Close()
		check(os.RemoveAll(dir))
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answer(c)
		}
	}()
	return path
}

// A program of the system is not looked for in the root of a space that has a root of its own.
func TestHostPathWithARoot(t *testing.T) {
	s := &Config{Isolation: IsolationBwrap, Binds: []Bind{{Host: "/s/root", Inside: "/"}, {Host: "/s/work", Inside: "/app"}}, Visible: []string{"/home/me/agent"}}
	for inside, want := range map[string]string{"/data/x": "/s/root/data/x", "/app/x": "/s/work/x", "/usr/bin/python3": "", "/home/me/agent/bin": "/home/me/agent/bin"} {
		if got, ok := s.HostPath(inside); ok != (want != "") || ok && got != want {
			t.Errorf("HostPath(%s) = %s, %v", inside, got, ok)
		}
	}
}
