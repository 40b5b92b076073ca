package acp

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

func TestAgentReadsAndWritesOnlyInTheWorkspace(t *testing.T) {
	testenv.NeedSlow(t)
	home := t.TempDir()
	cwd := filepath.Join(home, "workspace")
	if err := os.Mkdir(cwd, 0o700); err != nil {
		t.Fatal(err)
	}
	files, err := NewFiles(FilesOptions{Roots: folders(cwd)})
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	var requests atomic.Int32
	a := startAgent(t, home, "", Options{Files: files, Requested: func() { requests.Add(1) }})
	s := a.open()
	got := a.say(s, "[[FAULT outside]]")
	if requests.Load() != 3 { // A23: each is a sign of life
		t.Errorf("%d requests were told", requests.Load())
	}
	if strings.Contains(got, "root:") || strings.Count(got, `"code":-32602`) != 3 {
		t.Errorf("got %s", got)
	}
	got = a.say(s, `[[REQUEST fs/write_text_file {"path":"`+cwd+`/a.txt","content":"one\ntwo\nthree\n"}]]`+
		`[[REQUEST fs/read_text_file {"path":"`+cwd+`/a.txt","line":2,"limit":1}]]`+`[[REQUEST fs/read_text_file {"path":"`+cwd+`/b.txt"}]]`)
	want := "fs/write_text_file {}\nfs/read_text_file {\"content\":\"two\\n\"}\nfs/read_text_file {\"error\":{\"code\":-32002,\"message\":\"there is no " + cwd + "/b.txt\"}}\n"
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if !a.recorded("> ", `"method":"initialize"`, `"fs":{"readTextFile":true,"writeTextFile":true},"terminal":false`) {
		t.Error("the capability was not advertised")
	}
}

func TestAgentRunsCommandsInTerminals(t *testing.T) {
	home := t.TempDir()
	cwd := filepath.Join(home, "workspace")
	if err := os.Mkdir(cwd, 0o700); err != nil {
		t.Fatal(err)
	}
	terminals, err := NewTerminals(TerminalsOptions{Roots: folders(cwd), Start: startCommand})
	if err != nil {
		t.Fatal(err)
	}
	defer terminals.Close()
	a := startAgent(t, home, "", Options{Terminals: terminals})
	s := a.open()
	got := a.say(s, `[[REQUEST terminal/create {"command":"sh","args":["-c","pwd; echo $X; exit 3"],"env":[{"name":"X","value":"y"}]}]]`+
		`[[REQUEST terminal/wait_for_exit {"terminalId":"term-1"}]][[REQUEST terminal/output {"terminalId":"term-1"}]]`+
		`[[REQUEST terminal/release {"terminalId":"term-1"}]][[REQUEST terminal/output {"terminalId":"term-1"}]]`)
	want := `terminal/create {"terminalId":"term-1"}
terminal/wait_for_exit {"exitCode":3,"signal":null}
terminal/output {"output":"` + cwd + `\ny\n","truncated":false,"exitStatus":{"exitCode":3,"signal":null}}
terminal/release {}
terminal/output {"error":{"code":-32002,"message":"there is no terminal \"term-1\""}}
`
	if got != want {
		t.Errorf("got %s", got)
	}
	// A cancelled turn withdraws its wait_for_exit; the process is still there, and ends with
	// Close.
	going := make(chan struct{}, 100)
	a.client.onUpdate = func(u Update) {
		if text, _ := u.Text(); text == "go" {
			going <- struct{}{}
		}
	}
	turn := background(func() string {
		result, err := a.Prompt(testContext(t), s.ID, Text(`[[REQUEST terminal/create {"command":"sleep","args":["600"]}]][[SAY go]][[REQUEST terminal/wait_for_exit {"terminalId":"term-2"}]]`))
		if err != nil {
			t.Error(err)
		}
		return result.StopReason
	})
	testenv.Receive(t, going)
	if err := a.Cancel(testContext(t), s.ID); err != nil {
		t.Fatal(err)
	}
	if got := testenv.Receive(t, turn); got != StopCancelled {
		t.Errorf("got %q", got)
	}
}

func TestElicitation(t *testing.T) {
	answers := []func() (ElicitationResult, error){
		func() (ElicitationResult, error) { return ElicitationResult{Action: ElicitDecline}, nil },
		func() (ElicitationResult, error) { return ElicitationResult{}, errors.New("nobody is there") },
		func() (ElicitationResult, error) { return ElicitationResult{ElicitAccept, []byte(`{"name":"x"}`)}, nil },
	}
	var asked []ElicitationRequest
	a := startAgent(t, "", "", Options{Elicit: func(_ context.Context, r ElicitationRequest) (ElicitationResult, error) {
		asked = append(asked, r)
		return answers[len(asked)-1]()
	}})
	s := a.open()
	const ask = `[[REQUEST elicitation/create {"mode":"form","message":"who?","requestedSchema":{"type":"object"}}]]`
	want := "elicitation/create {\"action\":\"decline\"}\nelicitation/create {\"action\":\"cancel\"}\nelicitation/create {\"action\":\"accept\",\"content\":{\"name\":\"x\"}}\n"
	if got := a.say(s, ask+ask+ask); got != want {
		t.Errorf("got %s", got)
	}
	if r := asked[0]; r.Mode != "form" || r.Message != "who?" || r.SessionID != s.ID || string(r.Schema) != `{"type":"object"}` {
		t.Errorf("asked %+v", r)
	}
	if !a.recorded("> ", `"method":"initialize"`, `"elicitation":{"form":{},"url":{}}`) {
		t.Error("the capability was not advertised")
	}
}

// startCommand is a TerminalsOptions.Start without a sandbox.
func startCommand(c TerminalCommand) (TerminalProcess, error) {
	cmd := exec.Command(c.Command, c.Args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Env = c.Cwd, c.Output, c.Output, os.Environ()
	for _, v := range c.Env {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return commandProcess{cmd}, cmd.Start()
}

type commandProcess struct{ *exec.Cmd }

func (p commandProcess) Wait() TerminalExit {
	_ = p.Cmd.Wait() // how it ended is in ProcessState
	if status, ok := p.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		name := status.Signal().String()
		return TerminalExit{Signal: &name}
	}
	code := p.ProcessState.ExitCode()
	return TerminalExit{Code: &code}
}

func (p commandProcess) Kill() error {
	if err := syscall.Kill(-p.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}
