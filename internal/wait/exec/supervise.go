package exec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/jsonvalue"
)

const (
	// detachedVar is set in the second process of a supervisor.
	detachedVar = ownPrefix + "JOB_DETACHED"
	// endGrace is how long a command may take to end when it is told to, and how long its pipes are
	// read after it has ended.
	endGrace = 2 * time.Second
	// stderrTail is how much of stderr a fault quotes.
	stderrTail = 2000
)

// SuperviseMain is the hidden command job-supervisor of the program that was given as
// [Options].Executable. Called first, it starts its own program again in a new session and returns,
// so that the starter has nothing to wait for. The second process runs the command of the job, once
// at most, and records its result. It returns the exit status.
func SuperviseMain(jobDir string) int {
	act := supervise
	if os.Getenv(detachedVar) == "" {
		act = detach
	}
	if err := act(jobDir); err != nil {
		fmt.Fprintln(os.Stderr, time.Now().UTC().Format(time.RFC3339), supervisorCommand+":", err)
		return 1
	}
	return 0
}

func detach(jobDir string) error {
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(jobDir, logFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	cmd := exec.Command(executable, os.Args[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), detachedVar+"=1"), log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, log.Close())
	}
	return errors.Join(cmd.Process.Release(), log.Close())
}

// supervise takes the lock, and runs the command if nobody has begun to. It works inside the job's
// folder, so that the folder may be renamed.
func supervise(jobDir string) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // not Ignore, which the command would inherit
	if err := os.Chdir(jobDir); err != nil {
		return err
	}
	lock, ok, err := takeLock(lockFile)
	if err != nil || !ok {
		return err
	}
	defer func() { _ = lock.Close() }() // after everything else: closing it gives it up
	dir := jobFolder(".")
	step("job.locked")
	if dir.has(resultFile) || dir.has(startedFile) {
		return nil // in the second case the job is lost, which a check will say
	}
	var spec jobSpec
	if found, err := dir.read(specFile, &spec); err != nil || !found || len(spec.Command) == 0 {
		return errors.Join(err, dir.write(resultFile, failedJob(
			"the job could not be started: its spec.json cannot be read")))
	}
	own, err := takeEnvironment()
	if err != nil {
		return errors.Join(err, dir.write(resultFile, failedJob(
			"the job could not be started: its environment cannot be read")))
	}
	var result jobResult
	if dir.has(cancelFile) || len(signals) > 0 {
		result = failedJob("the job was cancelled before it began")
	} else {
		if err := dir.write(startedFile, processOf(os.Getpid())); err != nil {
			return err
		}
		step("job.started")
		result = spec.run(dir, signals, redact.New(redact.FromEnviron(os.Environ(), own)))
	}
	step("job.ended")
	if err := dir.write(resultFile, result); err != nil {
		return err
	}
	step("job.result")
	spec.tellEnd()
	return nil
}

// takeEnvironment makes the environment of this process the one of the command, and returns the
// names that the job's configuration gives.
func takeEnvironment() (names []string, err error) {
	own := map[string]string{}
	if v := os.Getenv(envVar); v != "" {
		if err := json.Unmarshal([]byte(v), &own); err != nil {
			return nil, errors.New(envVar + " is not a JSON object")
		}
	}
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, ownPrefix) {
			if err := os.Unsetenv(name); err != nil {
				return nil, err
			}
		}
	}
	for name, value := range own {
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// run runs the command to its end. It keeps the payload as it is, and what the command writes to
// stderr without secrets.
func (s jobSpec) run(dir jobFolder, signals <-chan os.Signal, red *redact.Redactor) jobResult {
	stdout, stderr := &limited{left: jsonvalue.MaxPayload}, &tailed{}
	if f, err := os.OpenFile(dir.path(stderrFile), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600); err == nil {
		defer func() { _ = f.Close() }()
		stderr.log = f
	}
	clean := red.Writer(stderr)
	cmd := exec.Command(s.Command[0], s.Command[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = s.CWD, bytes.NewReader(s.Input), stdout, clean
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = endGrace
	began := time.Now().UTC()
	if err := cmd.Start(); err != nil {
		return failedJob("the command could not be started: " + err.Error())
	}
	// Without this file only a command that outlives its supervisor cannot be ended.
	_ = dir.write(commandFile, processOf(cmd.Process.Pid))
	step("job.running")
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	why, err := s.wait(cmd.Process.Pid, done, signals, dir)
	_ = clean.Close() // writing to stderr's log does not fail
	code := cmd.ProcessState.ExitCode()
	r := jobResult{ExitCode: &code, Payload: json.RawMessage("null"), StartedAt: began, EndedAt: time.Now().UTC()}
	switch {
	case why != "":
	case stdout.left < 0:
		why = fmt.Sprintf("the command printed more than %d MiB", jsonvalue.MaxPayload>>20)
	case !cmd.ProcessState.Success():
		why = fmt.Sprintf("the command ended with %s%s", cmd.ProcessState, stderr.quote())
	// A child that keeps the pipes open does not make the job fail.
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		why = "reading what the command printed: " + err.Error()
	}
	if why != "" {
		r.Error = &wait.Error{Code: string(fault.Job), Message: why}
		return r
	}
	r.Payload = jsonvalue.FromOutput(stdout.kept.Bytes())
	return r
}

// wait waits for the command's end, and ends its process group when it is cancelled or takes too
// long; then why says so.
func (s jobSpec) wait(pid int, done <-chan error, signals <-chan os.Signal, dir jobFolder) (why string, err error) {
	var timeout <-chan time.Time
	if s.Timeout > 0 {
		t := time.NewTimer(time.Duration(s.Timeout))
		defer t.Stop()
		timeout = t.C
	}
	select {
	case err := <-done:
		return "", err
	case sig := <-signals:
		why = fmt.Sprintf("the job was ended with its supervisor, which got the signal %s", sig)
		if dir.has(cancelFile) {
			why = "the job was cancelled"
		}
	case <-timeout:
		why = fmt.Sprintf("the job took longer than its timeout of %s", time.Duration(s.Timeout))
	}
	_ = syscall.Kill(-pid, syscall.SIGTERM)
	kill := time.AfterFunc(endGrace, func() { _ = syscall.Kill(-pid, syscall.SIGKILL) })
	err = <-done
	kill.Stop()
	_ = syscall.Kill(-pid, syscall.SIGKILL) // what its leader left behind
	return why, err
}

// limited keeps what is written to it, up to a limit. More is an error, which closes the pipe to
// the command.
type limited struct {
	kept bytes.Buffer // not embedded: its ReadFrom would be taken in place of Write
	left int
}

func (l *limited) Write(b []byte) (int, error) {
	if l.left -= len(b); l.left < 0 {
		return 0, jsonvalue.ErrTooLong
	}
	return l.kept.Write(b)
}

// tailed copies the first megabytes to a file and keeps the end.
type tailed struct {
	log     io.Writer
	written int
	tail    []byte
}

func (t *tailed) Write(b []byte) (int, error) {
	if room := jsonvalue.MaxPayload - t.written; room > 0 && t.log != nil {
		n, _ := t.log.Write(b[:min(room, len(b))]) // a full disk must not stop the command
		t.written += n
	}
	t.tail = append(t.tail, b...)
	if extra := len(t.tail) - stderrTail; extra > 0 {
		t.tail = append(t.tail[:0], t.tail[extra:]...)
	}
	return len(b), nil
}

// quote gives the tail for an error message.
func (t *tailed) quote() string {
	s := strings.TrimSpace(strings.ToValidUTF8(string(t.tail), ""))
	if s == "" {
		return ""
	}
	return "; its stderr ends with: " + s
}
