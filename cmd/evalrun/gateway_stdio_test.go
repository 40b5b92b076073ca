package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/testenv"
)

// startedGateway is `evalrun gateway --stdio` as the process that a client starts.
type startedGateway struct {
	io.Reader
	io.WriteCloser
	cmd  *exec.Cmd
	exit error // of the process, once it is closed
}

// Close implements io.Closer: the process ends because its stdin does.
func (g *startedGateway) Close() error {
	err := g.WriteCloser.Close()
	g.exit = g.cmd.Wait()
	return err
}

// newGateway is a gateway that is to be started, with its temporary files in a folder.
func newGateway(tmp string, args ...string) (*startedGateway, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	g := &startedGateway{cmd: exec.Command(self)}
	g.cmd.Args = append([]string{"evalrun", "gateway"}, args...)
	g.cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	return g, nil
}

// startGateway starts a gateway whose stdin and stdout are pipes.
func startGateway(tmp string, args ...string) (*startedGateway, error) {
	g, err := newGateway(tmp, args...)
	if err != nil {
		return nil, err
	}
	g.cmd.Stderr = os.Stderr
	if g.WriteCloser, err = g.cmd.StdinPipe(); err == nil {
		g.Reader, err = g.cmd.StdoutPipe()
	}
	return g, errors.Join(err, g.cmd.Start())
}

// taskServerConfig is a configuration with the task server as a program on stdio.
func taskServerConfig(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "tasks")
	if err := testenv.Build(dir, testenv.TasksServer); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "mcp.json")
	if err := os.WriteFile(config, fmt.Appendf(nil, `{"mcpServers":{"tasks":{"command":%q}}}`, program), 0o600); err != nil {
		t.Fatal(err)
	}
	return config
}

// A client that starts its servers has calls, and tasks of its era, of one server or of all. When
// it closes stdin nothing is left, of the server neither.
func TestGatewayOverStdio(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	config := taskServerConfig(t)
	for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
		for _, name := range []string{"tasks", "all"} {
			t.Run(string(era)+" "+name, func(t *testing.T) {
				t.Parallel()
				tmp := t.TempDir()
				var g *startedGateway
				c, err := mcp.Connect(t.Context(), mcp.Target{Start: func(context.Context) (_ io.ReadWriteCloser, err error) {
					g, err = startGateway(tmp, config, "--stdio", name)
					return g, err
				}}, mcp.ClientOptions{Protocol: era, Capabilities: json.RawMessage(`{"extensions":{"io.modelcontextprotocol/tasks":{}}}`)})
				if err != nil {
					t.Fatal(err)
				}
				names := map[string]string{}
				var tools []struct{ Name string }
				if err := json.Unmarshal(callGateway(t, c, mcp.MethodToolsList, `{}`).Get("tools"), &tools); err != nil {
					t.Fatal(err)
				}
				for _, tool := range tools { // those of all servers begin with the server's name
					names[strings.TrimLeft(strings.TrimPrefix(tool.Name, "tasks"), "_.")] = tool.Name
				}
				for i := range 3 {
					text := fmt.Sprint("call ", i)
					result := callGateway(t, c, mcp.MethodToolsCall, fmt.Sprintf(`{"name":%q,"arguments":{"text":%q}}`, names["echo"], text))
					if !strings.Contains(string(result.Get("content")), text) {
						t.Errorf("%s: %s", text, result.JSON())
					}
				}
				if got := string(taskOverStdio(t, c, era, names["compute"])); !strings.Contains(got, "task 1") {
					t.Errorf("the task's result is %s", got)
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
				mustHaveEnded(t, g, tmp)
			})
		}
	}
}

// taskOverStdio makes a call as a task and waits for its result.
func taskOverStdio(t *testing.T, c *mcp.Client, era mcp.Era, name string) json.RawMessage {
	t.Helper()
	params := fmt.Sprintf(`{"name":%q,"arguments":{"ms":1500,"text":"task 1"}`, name)
	if era == mcp.Legacy {
		id := callGateway(t, c, mcp.MethodToolsCall, params+`,"task":{}}`).Object("task").Text("taskId")
		return callGateway(t, c, mcp.MethodTasksResult, `{"taskId":"`+id+`"}`).JSON()
	}
	o := callGateway(t, c, mcp.MethodToolsCall, params+`}`)
	id := o.Text("taskId")
	if id == "" {
		t.Fatalf("%s is no task", o.JSON())
	}
	ended := make(chan jsonobj.Object, 1)
	go func() { // until the task has ended, of which it is told at once if it has already
		_, _ = c.Call(t.Context(), mcp.Call{
			Method: mcp.MethodListen, Params: json.RawMessage(`{"notifications":{"taskIds":["` + id + `"]}}`),
			Notified: func(method string, params json.RawMessage) {
				if o, _ := jsonobj.ParseObject(params); method == mcp.NoteTask && o.Text("status") == "completed" {
					select {
					case ended <- o:
					default:
					}
				}
			},
		})
	}()
	select {
	case o := <-ended:
		return o.Get("result")
	case <-t.Context().Done():
		return nil
	}
}

// mustHaveEnded checks that a gateway has ended well and has left no files.
func mustHaveEnded(t *testing.T, g *startedGateway, tmp string) {
	t.Helper()
	if g.exit != nil {
		t.Errorf("the gateway ended with %v", g.exit)
	}
	left, err := os.ReadDir(tmp)
	if err != nil || len(left) > 0 {
		t.Errorf("left in the folder for temporary files: %v, %v", left, err)
	}
}

// A gateway that is asked to end in the middle of a call does so, and so does its server.
func TestGatewayOverStdioIsTerminated(t *testing.T) {
	testenv.NeedSlow(t)
	tmp := t.TempDir()
	g, err := startGateway(tmp, taskServerConfig(t), "--stdio", "tasks")
	if err != nil {
		t.Fatal(err)
	}
	send := func(text string) {
		if _, err := io.WriteString(g, text+"\n"); err != nil {
			t.Error(err)
		}
	}
	in := json.NewDecoder(g)
	var answer struct{ Result json.RawMessage }
	send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	if err := in.Decode(&answer); err != nil || answer.Result == nil {
		t.Fatal(err)
	}
	send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"compute","arguments":{"ms":600000,"text":"never"},"_meta":{"progressToken":1}}}`)
	send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	if err := in.Decode(&answer); err != nil { // of the second: the first has been begun
		t.Fatal(err)
	}
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, g) // until it ends, for which its stdin stays open
	_ = g.Close()
	mustHaveEnded(t, g, tmp)
}

// descriptors are two ends of a connection, the first of which is the gateway's.
func descriptors(t *testing.T, make func(fds *[2]int) error) (theirs, ours *os.File) {
	t.Helper()
	var fds [2]int
	if err := make(&fds); err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds { // of which the process gets copies
		syscall.CloseOnExec(fd)
	}
	if err := syscall.SetNonblock(fds[1], true); err != nil {
		t.Fatal(err)
	}
	theirs, ours = os.NewFile(uintptr(fds[0]), "theirs"), os.NewFile(uintptr(fds[1]), "ours")
	t.Cleanup(func() {
		_ = theirs.Close()
		_ = ours.Close()
	})
	return theirs, ours
}

// The gateway takes what it is given as stdin, stdout and stderr, and long messages go through.
func TestGatewayOnAnyDescriptors(t *testing.T) {
	testenv.NeedSlow(t)
	config := taskServerConfig(t)
	in := func(t *testing.T, nonblock bool) (theirs, ours *os.File) {
		return descriptors(t, func(fds *[2]int) error {
			return errors.Join(syscall.Pipe(fds[:]), syscall.SetNonblock(fds[0], nonblock))
		})
	}
	out := func(t *testing.T, nonblock bool) (theirs, ours *os.File) {
		return descriptors(t, func(fds *[2]int) error {
			err := syscall.Pipe(fds[:])
			fds[0], fds[1] = fds[1], fds[0]
			return errors.Join(err, syscall.SetNonblock(fds[0], nonblock))
		})
	}
	for name, connect := range map[string]func(t *testing.T, cmd *exec.Cmd) (io.Reader, io.WriteCloser){
		"pipes that do not block": func(t *testing.T, cmd *exec.Cmd) (io.Reader, io.WriteCloser) {
			stdin, w := in(t, true)
			stdout, r := out(t, true)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, os.Stderr
			return r, w
		},
		"stdout and stderr are one": func(t *testing.T, cmd *exec.Cmd) (io.Reader, io.WriteCloser) {
			stdin, w := in(t, false)
			stdout, r := out(t, false)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stdout
			return r, w
		},
		"one socket": func(t *testing.T, cmd *exec.Cmd) (io.Reader, io.WriteCloser) {
			socket, conn := descriptors(t, func(fds *[2]int) (err error) {
				*fds, err = syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
				return err
			})
			cmd.Stdin, cmd.Stdout, cmd.Stderr = socket, socket, os.Stderr
			return conn, conn
		},
		"one socket for all": func(t *testing.T, cmd *exec.Cmd) (io.Reader, io.WriteCloser) {
			socket, conn := descriptors(t, func(fds *[2]int) (err error) {
				*fds, err = syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
				return err
			})
			cmd.Stdin, cmd.Stdout, cmd.Stderr = socket, socket, socket
			return conn, conn
		},
	} {
		t.Run(name, func(t *testing.T) {
			tmp := t.TempDir()
			g, err := newGateway(tmp, config, "--stdio", "tasks")
			if err != nil {
				t.Fatal(err)
			}
			g.Reader, g.WriteCloser = connect(t, g.cmd)
			c, err := mcp.Connect(t.Context(), mcp.Target{Start: func(context.Context) (io.ReadWriteCloser, error) {
				err := g.cmd.Start()
				_ = g.cmd.Stdin.(io.Closer).Close() // the process has its own
				_ = g.cmd.Stdout.(io.Closer).Close()
				return g, err
			}}, mcp.ClientOptions{Protocol: mcp.Legacy})
			if err != nil {
				t.Fatal(err)
			}
			text := strings.Repeat("long ", 400_000)
			if got := callGateway(t, c, mcp.MethodToolsCall, `{"name":"echo","arguments":{"text":"`+text+`"}}`); !strings.Contains(string(got.Get("content")), text) {
				t.Error("the long text was not echoed")
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			mustHaveEnded(t, g, tmp)
		})
	}
}

// A client that dies in the middle of an answer is no reason to leave something behind.
func TestGatewayWhoseClientDies(t *testing.T) {
	testenv.NeedSlow(t)
	tmp := t.TempDir()
	g, err := startGateway(tmp, taskServerConfig(t), "--stdio", "tasks")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"` + strings.Repeat("long ", 400_000) + `"}}}`,
	} {
		if _, err := io.WriteString(g, text+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	begin := make([]byte, 1<<10) // the first answer, and the beginning of the second
	if _, err := io.ReadFull(g, begin); err != nil {
		t.Fatal(err)
	}
	_ = g.Reader.(io.Closer).Close()
	_ = g.Close()
	var exit *exec.ExitError
	if errors.As(g.exit, &exit) && exit.Exited() {
		g.exit = nil // it may say that its client has gone
	}
	mustHaveEnded(t, g, tmp)
}
