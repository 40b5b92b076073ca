package tasks

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/gatewaytest"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/testenv"
)

// tsPeer is a process of testdata/tasksdk: the official SDK for TypeScript, which knows tasks of
// 2025-11-25 as that for Go does not.
type tsPeer struct {
	in io.WriteCloser

	mu   sync.Mutex
	last int
	open map[int]chan tsAnswer // nil when the process has ended
}

// tsAnswer is what a command has come to. The error is the SDK's.
type tsAnswer struct {
	Result json.RawMessage
	Error  *tsError
}

type tsError struct {
	Code    json.RawMessage
	Message string
	Data    json.RawMessage
}

// args are those of a command.
type args map[string]any

func startTSPeer(t *testing.T, script string) *tsPeer {
	t.Helper()
	node, installed := testenv.Node(t), testenv.LabFile(t, "everything/node_modules/@modelcontextprotocol/sdk/package.json")
	cmd := exec.Command(node, filepath.Join("testdata/tasksdk", script), installed)
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &tsPeer{in: in, open: map[int]chan tsAnswer{}}
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.read(out)
	}()
	t.Cleanup(func() {
		_ = in.Close() // its end
		late := time.AfterFunc(gatewaytest.TaskLimit, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		<-read
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", script, err)
		}
	})
	return p
}

func (p *tsPeer) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var answer struct {
			ID int
			tsAnswer
		}
		_ = json.Unmarshal(lines.Bytes(), &answer) // what is no answer has no id
		p.mu.Lock()
		if waiting := p.open[answer.ID]; waiting != nil {
			waiting <- answer.tsAnswer
			delete(p.open, answer.ID)
		}
		p.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, waiting := range p.open {
		waiting <- tsAnswer{Error: &tsError{Message: "the process has ended"}}
	}
	p.open = nil
}

// begin gives a command; commands begin in the order in which they are given.
func (p *tsPeer) begin(t *testing.T, do string, a args) <-chan tsAnswer {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		t.Fatalf("%s: the process has ended", do)
	}
	p.last++
	line, err := json.Marshal(map[string]any{"id": p.last, "do": do, "args": a})
	if err != nil {
		t.Fatal(err)
	}
	answer := make(chan tsAnswer, 1)
	p.open[p.last] = answer
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		t.Fatalf("%s: %v", do, err)
	}
	return answer
}

// ended reads the result of a command that must succeed.
func ended[T any](t *testing.T, answer <-chan tsAnswer) (v T) {
	t.Helper()
	a := gatewaytest.WaitFor(t, answer)
	if a.Error != nil {
		t.Fatalf("error %s: %s", a.Error.Code, a.Error.Message)
	}
	if err := json.Unmarshal(a.Result, &v); err != nil {
		t.Fatalf("%s: %v", a.Result, err)
	}
	return v
}

// tsServer are the SDK's servers. A call goes by the text that its tool is called with.
type tsServer struct {
	*tsPeer
	url string
}

func startTSServer(t *testing.T) *tsServer {
	t.Helper()
	p := startTSPeer(t, "server.mjs")
	return &tsServer{p, ended[string](t, p.begin(t, "listen", nil))}
}

// tasks is the server with tasks, plain the one without.
func (s *tsServer) tasks() gateway.Server {
	return gateway.Server{Name: "tasks", Target: mcp.Target{URL: s.url + "/tasks"}}
}
func (s *tsServer) plain() gateway.Server {
	return gateway.Server{Name: "plain", Target: mcp.Target{URL: s.url + "/plain"}}
}

func (s *tsServer) until(t *testing.T, text, is string) {
	t.Helper()
	ended[any](t, s.begin(t, "until", args{"text": text, "is": is}))
}

func (s *tsServer) release(t *testing.T, text string) {
	t.Helper()
	ended[any](t, s.begin(t, "release", args{"text": text}))
}

// tsCall is what a server has seen of a call: the params of each tools/call, how often the tool was
// run, and its own ids of the tasks.
type tsCall struct {
	Params []struct{ Task json.RawMessage }
	Runs   int
	Tasks  []string
}

func (s *tsServer) seen(t *testing.T, text string) tsCall {
	t.Helper()
	return ended[tsCall](t, s.begin(t, "seen", args{"text": text}))
}

// once says that a call was made once and has run its tool once, as a task or not.
func (s *tsServer) once(t *testing.T, text string, asTask bool) {
	t.Helper()
	if c := s.seen(t, text); len(c.Params) != 1 || c.Runs != 1 || (c.Params[0].Task != nil) != asTask {
		t.Errorf("%s: %+v", text, c)
	}
}

// tsClient is a client of the SDK, with a session of its own.
type tsClient struct {
	t            *testing.T
	p            *tsPeer
	id           int
	capabilities jsonobj.Object
}

// tsTask is what the SDK knows of a task, after it has checked that.
type tsTask struct {
	TaskID string
	Status string
	TTL    *int
}

// tsTool is what the SDK knows of a tool.
type tsTool struct {
	Name      string
	Execution struct{ TaskSupport string }
}

// connectTS connects a client to the endpoint of a server. It ends its session before the gateway
// ends.
func connectTS(t *testing.T, p *tsPeer, g *taskGateway, server string) *tsClient {
	t.Helper()
	hello := ended[struct {
		Client       int
		Capabilities json.RawMessage
	}](t, p.begin(t, "connect", args{"url": g.access.URLWithToken(server)}))
	c := &tsClient{t: t, p: p, id: hello.Client}
	c.capabilities, _ = jsonobj.ParseObject(hello.Capabilities)
	t.Cleanup(c.end)
	return c
}

func (c *tsClient) begin(do string, a args) <-chan tsAnswer {
	c.t.Helper()
	all := args{"client": c.id}
	for k, v := range a {
		all[k] = v
	}
	return c.p.begin(c.t, do, all)
}

// end ends the session, also one that has ended.
func (c *tsClient) end() {
	c.t.Helper()
	ended[any](c.t, c.begin("end", nil))
}

func (c *tsClient) tools() map[string]string {
	c.t.Helper()
	supports := map[string]string{}
	for _, tool := range ended[[]tsTool](c.t, c.begin("tools", nil)) {
		supports[tool.Name] = tool.Execution.TaskSupport
	}
	return supports
}

// task calls a tool as a task, which works then, and returns its id.
func (c *tsClient) task(tool, text string) string {
	c.t.Helper()
	task := ended[tsTask](c.t, c.begin("task", args{"name": tool, "text": text}))
	if task.TaskID == "" || task.Status != "working" {
		c.t.Fatalf("no task that works: %+v", task)
	}
	return task.TaskID
}

func (c *tsClient) status(id string) string {
	c.t.Helper()
	task := ended[tsTask](c.t, c.begin("get", args{"taskId": id}))
	if task.TaskID != id {
		c.t.Errorf("%s is said to be %s", id, task.TaskID)
	}
	return task.Status
}

// lists reports whether a task is in the list.
func (c *tsClient) lists(id string) bool {
	c.t.Helper()
	return slices.ContainsFunc(ended[[]tsTask](c.t, c.begin("list", nil)), func(t tsTask) bool { return t.TaskID == id })
}

func (c *tsClient) cancel(id string) (status string) {
	c.t.Helper()
	return ended[tsTask](c.t, c.begin("cancel", args{"taskId": id})).Status
}

// note waits for a notification about a task.
func (c *tsClient) note(id, status string) tsTask {
	c.t.Helper()
	return ended[tsTask](c.t, c.begin("note", args{"taskId": id, "status": status}))
}

// content expects that a command ends with the result of a tool.
func (c *tsClient) content(answer <-chan tsAnswer, text string, isError bool) {
	c.t.Helper()
	r := ended[struct {
		Content []struct{ Text string }
		IsError bool
	}](c.t, answer)
	if len(r.Content) != 1 || r.Content[0].Text != text || r.IsError != isError {
		c.t.Errorf("expected %q, got %+v", text, r)
	}
}

// refused expects that a command ends with an error of the protocol.
func (c *tsClient) refused(answer <-chan tsAnswer, code int64, message string) tsError {
	c.t.Helper()
	a := gatewaytest.WaitFor(c.t, answer)
	if a.Error == nil || string(a.Error.Code) != fmt.Sprint(code) || !strings.Contains(a.Error.Message, message) {
		c.t.Fatalf("expected error %d with %q, got %s, %+v", code, message, a.Result, a.Error)
	}
	return *a.Error
}
