package pyagent

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

const leaving = `
import asyncio, random, threading

def draws(): return [random.random() for _ in range(3)]

def thread():
    threading.Thread(target=threading.Event().wait, name="leaky").start()
    return 1

kept = []

async def task():
    kept.append(asyncio.get_running_loop().create_task(asyncio.Event().wait()))
    return len(kept)

async def pending(): return [one.done() for one in kept]

def main(name): return {"draws": draws, "thread": thread, "task": task, "pending": pending}[name]()
`

// answered is what a worker has answered.
type answered struct {
	Output json.RawMessage
	Error  *struct{ Message string }
	Stats  struct{ Dirty []string }
}

// conversation is a worker whose protocol a test speaks itself.
type conversation struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
}

func converse(t *testing.T) *conversation {
	t.Helper()
	testenv.NeedPython(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "agent.py"), []byte(leaving), 0o600); err != nil {
		t.Fatal(err)
	}
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	command, bad := workerOf(path, dir, append(os.Environ(), "EVALRUN_NONCE=n"), Python, "agent.py:main")
	if bad != nil {
		t.Fatal(bad)
	}
	c := &conversation{t: t, cmd: exec.Command(command.Path, command.Args[1:]...)}
	c.cmd.Dir, c.cmd.Env = command.Dir, command.Env
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdout = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.cmd.Process.Kill() })
	if line, err := c.stdout.ReadString('\n'); err != nil || !strings.Contains(line, `"nonce":"n"`) || strings.Contains(line, `"error"`) {
		t.Fatalf("got %q, %v", line, err)
	}
	return c
}

func (c *conversation) segment(name string, more string) (a answered) {
	c.t.Helper()
	if _, err := io.WriteString(c.stdin, `{"op":"segment","id":"1","input":"`+name+`"`+more+"}\n"); err != nil {
		c.t.Fatal(err)
	}
	line, err := c.stdout.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &a)
	}
	if err != nil || a.Error != nil {
		c.t.Fatalf("%s: %s, %v", name, line, err)
	}
	return a
}

// end closes stdin, at which the worker ends with 0.
func (c *conversation) end() {
	c.t.Helper()
	_ = c.stdin.Close()
	if err := c.cmd.Wait(); err != nil {
		c.t.Error(err)
	}
}

// Vector 18: one seed gives the same numbers, in whatever segment.
func TestASeedGivesTheSameNumbers(t *testing.T) {
	c := converse(t)
	first, again, other := c.segment("draws", `,"seed":7`), c.segment("draws", `,"seed":7`), c.segment("draws", `,"seed":8`)
	if string(first.Output) != string(again.Output) || string(first.Output) == string(other.Output) {
		t.Errorf("got %s, %s, %s", first.Output, again.Output, other.Output)
	}
	c.end()
}

// Vector 19: a thread that a segment has left is reported, and does not keep the worker.
func TestAThreadThatIsLeft(t *testing.T) {
	c := converse(t)
	if a := c.segment("thread", ""); !slices.Equal(a.Stats.Dirty, []string{"threads:leaky"}) {
		t.Errorf("got %q", a.Stats.Dirty)
	}
	if a := c.segment("draws", ""); len(a.Stats.Dirty) > 0 {
		t.Errorf("the next segment is said to have left %q", a.Stats.Dirty)
	}
	c.end()
}

// Vector 26: a task that a segment has left is reported, and goes on in the next.
func TestATaskThatIsLeft(t *testing.T) {
	c := converse(t)
	if a := c.segment("task", ""); !slices.Equal(a.Stats.Dirty, []string{"tasks:+1"}) {
		t.Errorf("got %q", a.Stats.Dirty)
	}
	if a := c.segment("pending", ""); string(a.Output) != "[false]" || len(a.Stats.Dirty) > 0 {
		t.Errorf("got %s, %q", a.Output, a.Stats.Dirty)
	}
	c.end()
}
