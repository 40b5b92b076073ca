package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// roleVar makes the test binary play one of the programs of roles.
const roleVar = "SANDBOX_TEST_ROLE"

// raceExit keeps a program under the race detector from sleeping for a second before it exits.
const raceExit = "GORACE=atexit_sleep_ms=0"

func TestMain(m *testing.M) {
	InitMain()
	name, value, _ := strings.Cut(raceExit, "=")
	check(os.Setenv(name, value))
	if role := roles[os.Getenv(roleVar)]; role != nil {
		role(os.Args[1:])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// roles are programs that a shell cannot play on every system.
var roles map[string]func(args []string)

func init() {
	roles = map[string]func(args []string){
		// deaf ignores SIGTERM.
		"deaf": func([]string) {
			signal.Ignore(syscall.SIGTERM)
			fmt.Println("ready")
			live()
		},
		// linger holds a FIFO open until it dies, and tells its parent when it does so.
		"linger": func(args []string) {
			signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
			fifo := must(os.OpenFile(args[0], os.O_WRONLY, 0))
			must(fmt.Fprintln(fifo, "alive"))
			check(os.NewFile(3, "ready").Close())
			live()
		},
		// leave starts linger and ends: args are the FIFO and how the child is started.
		"leave": func(args []string) {
			child := role("linger", args[0])
			for _, how := range args[1:] {
				switch how {
				case "setsid":
					child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
				case "stdout":
					child.Stdout = os.Stdout
				case "unmarked":
					child.Env = without(child.Env, MarkerVar)
				}
			}
			ready, childEnd, err := os.Pipe()
			check(err)
			child.ExtraFiles = []*os.File{childEnd}
			check(child.Start())
			check(childEnd.Close())
			must(io.ReadAll(ready))
			fmt.Println(child.Process.Pid)
		},
		// hop is always in a session of its own and always a new process.
		"hop": func(args []string) {
			child := role("hop", args...)
			child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			fifo := must(os.OpenFile(args[0], os.O_WRONLY, 0))
			must(fmt.Fprintln(fifo, "alive"))
			child.ExtraFiles = []*os.File{fifo}
			check(child.Start())
		},
		// evalrun starts a process in a space, says so, and waits: args are the isolation and a
		// FIFO, and if the space is to have a program for the connections to a socket, another FIFO
		// and the socket.
		"evalrun": func(args []string) {
			self := must(os.Executable())
			s := &Config{Isolation: args[0], Binds: []Bind{{Host: filepath.Dir(args[1]), Inside: "/life", Writable: true}}}
			if len(args) > 2 {
				s.Binds = append(s.Binds, Bind{Host: filepath.Dir(args[2]), Inside: "/spawned", Writable: true})
				s.Spawns = []Spawn{{Socket: args[3], Grace: time.Hour, Command: SetupCommand{
					Command: "trap '' TERM; exec 5> " + s.Path("/spawned/life") + "; echo alive >&5; while :; do sleep 1000; done"}}}
			}
			p := must(Start(Command{Marker: fmt.Sprint("inner-", os.Getpid()), Path: "/bin/sh", Config: s, Setup: &Setup{}, Executable: self,
				Args: []string{"sh", "-c", "trap '' TERM; exec 5> " + s.Path("/life/life") + "; echo alive >&5; while :; do sleep 1000; done"}}))
			check(p.Ready(context.Background()))
			fmt.Println("ready")
			must(p.Wait(context.Background()))
		},
		// dial prints what an address has to say, or why it cannot be reached.
		"dial": func(args []string) {
			c, err := net.Dial("tcp", args[0])
			if err != nil {
				fmt.Println(err)
				return
			}
			must(io.Copy(os.Stdout, c))
		},
		// ask sends three million bytes to an address, ends there, and prints the answer.
		"ask": func(args []string) {
			c := must(net.Dial("tcp", args[0])).(*net.TCPConn)
			must(c.Write(make([]byte, 3_000_000)))
			check(c.CloseWrite())
			must(io.Copy(os.Stdout, c))
		},
		// serve says a word to everybody who connects to an address.
		"serve": func(args []string) {
			l := must(net.Listen("tcp", args[0]))
			for {
				c := must(l.Accept())
				_, _ = fmt.Fprintln(c, args[1]) // whoever only looks whether it is there is gone
				_ = c.Close()
			}
		},
		// count says to everybody who connects to an address how many bytes were sent.
		"count": func(args []string) {
			l := must(net.Listen("tcp", args[0]))
			for {
				c := must(l.Accept()).(*net.TCPConn)
				n, _ := io.Copy(io.Discard, c)
				_, _ = fmt.Fprintf(c, "%d bytes", n) // whoever only looks whether it is there is gone
				_ = c.Close()
			}
		},
		// answer answers each line with its process id, its marker, WORD and the line, and says
		// when there are no more.
		"answer": func([]string) {
			for in := bufio.NewScanner(os.Stdin); in.Scan(); {
				fmt.Println(os.Getpid(), os.Getenv(MarkerVar), os.Getenv("WORD"), in.Text())
			}
			fmt.Println("bye")
		},
		// flood prints without end.
		"flood": func([]string) {
			block := bytes.Repeat([]byte("x"), 1<<20)
			for range 1024 {
				must(os.Stdout.Write(block))
			}
			fmt.Fprintln(os.Stderr, "the whole gigabyte was taken")
		},
	}
}

// live goes on until the process is killed.
func live() {
	for {
		time.Sleep(time.Hour)
	}
}

// role is a command that plays a role, with the environment of its parent.
func role(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), roleVar+"="+name, raceExit)
	return cmd
}

// roleCommand is the same for Start.
func roleCommand(t *testing.T, name string, args ...string) Command {
	self := must(os.Executable())
	return Command{Marker: unique(t), Path: self, Args: append([]string{self}, args...), Dir: t.TempDir(),
		Env: append(os.Environ(), roleVar+"="+name, raceExit)}
}

func shell(t *testing.T, script string) Command {
	return Command{Marker: unique(t), Path: "/bin/sh", Args: []string{"sh", "-c", script}, Dir: t.TempDir(), Env: os.Environ()}
}

// unique is a rollout id of this test alone.
func unique(t *testing.T) string {
	return fmt.Sprintf("%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), os.Getpid())
}

// life is a FIFO that is open for as long as a process which writes to it lives.
type life struct {
	path string
	r    *os.File
}

func newLife(t *testing.T) life {
	path := filepath.Join(t.TempDir(), "life")
	check(syscall.Mkfifo(path, 0o600))
	r := must(os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0))
	t.Cleanup(func() { check(r.Close()) })
	return life{path, r}
}

// awaitLife waits until somebody lives.
func awaitLife(t *testing.T, l life) {
	t.Helper()
	check(l.r.SetReadDeadline(time.Now().Add(10 * time.Second)))
	for {
		if n, err := l.r.Read(make([]byte, 100)); n > 0 {
			return
		} else if err != nil && err != io.EOF { // before somebody opens it for writing it is at its end
			t.Fatal(err)
		}
	}
}

// mustEnd fails unless nobody lives any more before long.
func (l life) mustEnd(t *testing.T) {
	t.Helper()
	check(l.r.SetReadDeadline(time.Now().Add(10 * time.Second)))
	if _, err := io.ReadAll(l.r); err != nil {
		t.Fatalf("a process that should be gone still lives (%v)", err)
	}
}

// mustBeOver fails unless somebody has lived and nobody does any more.
func (l life) mustBeOver(t *testing.T) {
	t.Helper()
	check(l.r.SetReadDeadline(time.Now().Add(10 * time.Second)))
	said, err := io.ReadAll(l.r)
	if err != nil {
		t.Fatalf("a process that should be gone still lives (%v)", err)
	}
	if len(said) == 0 {
		t.Fatal("the process never came to life: the test has shown nothing")
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	check(os.MkdirAll(filepath.Dir(path), 0o755))
	check(os.WriteFile(path, []byte(content), 0o644))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}
