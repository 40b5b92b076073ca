package sandbox

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestExposedPortIsReachedFromOutside(t *testing.T) {
	s := bwrapSpace(t)
	s.Exposes = []Expose{{Socket: place(t), Port: 8080}, {Socket: place(t), Port: 8081}, {Socket: place(t), Port: 8082}}
	addresses := []string{"127.0.0.1:8080"}
	want := []string{"four\n", "", ""}
	if l, err := net.Listen("tcp", "[::1]:0"); err == nil {
		check(l.Close())
		addresses, want[1] = append(addresses, "[::1]:8081"), "six\n"
	}
	c := inSpace(t, s, "exec cat")
	c.Interactive, c.Setup = true, &Setup{WaitFor: addresses}
	for i, address := range addresses {
		c.Setup.Services = append(c.Setup.Services, inside(s, "serve", address, strings.TrimSpace(want[i])))
	}
	p := must(Start(c))
	check(p.Ready(t.Context()))
	// Then what listens in there, in a network of its own, is reached through its socket; nobody
	// listens to the last one.
	for i, e := range s.Exposes {
		for range 3 {
			if got := readRest(t, dial(t, e.Socket)); got != want[i] {
				t.Errorf("port %d: got %q, want %q", e.Port, got, want[i])
			}
		}
	}
	p.End(nil, time.Hour)
	_, err := p.Wait(t.Context())
	check(err)
}

func TestExposedPortPassesOnEachEnd(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Config) {
		free := must(net.Listen("tcp", "127.0.0.1:0"))
		port := free.Addr().(*net.TCPAddr).Port
		check(free.Close())
		s.Exposes = []Expose{{Socket: place(t), Port: port}}
		c := inSpace(t, s, "exec cat")
		address := fmt.Sprintf("127.0.0.1:%d", port)
		c.Interactive, c.Setup = true, &Setup{WaitFor: []string{address}, Services: []SetupCommand{inside(s, "count", address)}}
		p := must(Start(c))
		check(p.Ready(t.Context()))
		conn := dial(t, s.Exposes[0].Socket)
		must(conn.Write(make([]byte, 3_000_000)))
		check(conn.CloseWrite())
		if got := readRest(t, conn); got != "3000000 bytes" {
			t.Errorf("got %q", got)
		}
		p.End(nil, time.Hour)
		_, err := p.Wait(t.Context())
		check(err)
		if _, err := os.Lstat(s.Exposes[0].Socket); err == nil {
			t.Error("the socket is still there")
		}
	})
}

func TestEntranceThatIsWrong(t *testing.T) {
	dir := filepath.Dir(place(t))
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, at("file"), "")
	long := at(strings.Repeat("x", maxSocketPath-len(dir)))
	cat := SetupCommand{Args: []string{"cat"}}
	for want, s := range map[string]Config{
		"exposed port 0: expected":                                      {Exposes: []Expose{{Socket: at("a")}}},
		"exposed port 65536: expected":                                  {Exposes: []Expose{{at("a"), 65536}}},
		"socket " + at("a") + ": expected a program":                    {Spawns: []Spawn{{Socket: at("a")}}},
		"its path is 104 bytes long, expected at most 103":              {Exposes: []Expose{{long, 80}}},
		`folder of socket a "." must be an absolute path`:               {Exposes: []Expose{{"a", 80}}},
		"folder of socket " + at("no/a") + ": stat " + at("no"):         {Spawns: []Spawn{{Socket: at("no/a"), Command: cat}}},
		"socket " + at("file") + ": its place is taken":                 {Spawns: []Spawn{{Socket: at("file"), Command: cat}}},
		"socket " + dir + "//b: its place is taken":                     {Exposes: []Expose{{at("b"), 80}}, Spawns: []Spawn{{Socket: dir + "//b", Command: cat}}},
		"socket that leads into the space: listen unix " + at("file/a"): {Exposes: []Expose{{at("ok"), 80}, {at("file/a"), 80}}},
	} {
		s.Isolation = IsolationProcess
		c := shell(t, "exit 0")
		c.Config, c.Executable = &s, must(os.Executable())
		before := openFiles(t)
		if _, err := Start(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want %s", err, want)
		}
		if after := openFiles(t); after > before {
			t.Errorf("%s: %d files open before, %d after", want, before, after)
		}
		if left := must(os.ReadDir(dir)); len(left) != 1 {
			t.Errorf("%s: left behind: %v", want, left)
		}
	}
	// The longest path is good.
	s := spaces(t)[0]
	s.Exposes = []Expose{{long[:maxSocketPath], 80}}
	c := inSpace(t, s, "[ -S "+long[:maxSocketPath]+" ]")
	if exit, _ := run(t, c); !exit.State.Success() {
		t.Errorf("got %+v", exit)
	}
}

func TestSocketIsForEvalrunsOwnUserOnly(t *testing.T) {
	s := spaces(t)[0]
	sp := startSpawning(t, s, Spawn{Command: SetupCommand{Args: []string{"cat"}}})
	if info := must(os.Stat(sp.socket)); info.Mode().Perm() != 0o600 {
		t.Errorf("got %v", info.Mode())
	}
	sp.end(t)
}

func TestRemainderOfAPipeThatIsHeldOpen(t *testing.T) {
	r, w, err := os.Pipe()
	check(err)
	defer r.Close()
	defer w.Close()
	must(w.Write(make([]byte, 50_000)))
	// Given a deadline that has passed, then all that is there is read, and an open end keeps
	// nobody waiting.
	check(r.SetReadDeadline(time.Now()))
	if got, err := io.ReadAll(&remainder{r, r, maxRest}); err != nil || len(got) != 50_000 {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	must(w.Write(make([]byte, 50_000)))
	if got, err := io.ReadAll(&remainder{r, r, 100}); err != nil || len(got) != 100 {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	check(r.Close())
	if _, err := (&remainder{r, r, 100}).Read(make([]byte, 1)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("got %v", err)
	}
}
