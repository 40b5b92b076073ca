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

	"github.com/evalrun/evalrun/mcp"
	"github.com/evalrun/evalrun/rawjson"
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

// startGateway starts a gateway in front of the task server with its temporary files in a folder.
func startGateway(tmp string, args ...string) (*startedGateway, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	g := &startedGateway{cmd: exec.Command(self)}
	g.cmd.Args = append([]string{"evalrun", "gateway"}, args...)
	g.cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
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
	if out, err := exec.Command("go", "build", "-o", program, "../../fixtures/mcp/tasks").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	config := filepath.Join(dir, "mcp.json")
	if err := os.WriteFile(config, fmt.Appendf(nil, `{"mcpServers":{"tasks":{"command":%q}}}`, program), 0o600); err != nil {
		t.Fatal(err)
	}
	return config
}

// A client that starts its servers has calls, and tasks of its era, of one server or of all. When it closes stdin nothing is left, of the server neither.
func TestGatewayOverStdio(t *testing.T) {
	config := taskServerConfig(t)
	for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
		for _, name := range []string{"tasks", "all"} {
			t.Run(string(era)+" "+name, func(t *testing.T) {
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
	ended := make(chan rawjson.Object, 1)
	go func() { // until the task has ended, of which it is told at once if it has already
		_, _ = c.Call(t.Context(), mcp.Call{
			Method: mcp.MethodListen, Params: json.RawMessage(`{"notifications":{"taskIds":["` + id + `"]}}`),
			Notified: func(method string, params json.RawMessage) {
				if o, _ := rawjson.ParseObject(params); method == mcp.NoteTask && o.Text("status") == "completed" {
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
