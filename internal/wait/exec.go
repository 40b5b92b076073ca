package wait

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/sandbox"
)

const (
	// supervisorCommand is the hidden command that calls [SuperviseMain].
	supervisorCommand = "job-supervisor"
	// ownPrefix begins the names of evalrun's own environment variables, which a job does not get:
	// one of them marks the processes of a rollout, and those end with it.
	ownPrefix = "EVALRUN_"
	// envVar carries the configured environment of the job to its supervisor, as a JSON object.
	envVar = ownPrefix + "JOB_ENV"
	// checkExec is how soon to ask again for a job whose end is also told by a datagram.
	checkExec = 5 * time.Second
)

// step is called between the steps of starting and running a job; tests stop the process there.
var step = failpoint.Hit

// execSource runs local commands that outlive evalrun. Each job has a folder and a supervisor, a
// process of its own session that runs the command and writes the result. The lock on the folder
// and the file "started" make sure that a command is run once at most, whoever is killed when; so
// Start and Check may start a supervisor again whenever in doubt.
type execSource struct {
	dir, executable, baseDir, wakeDir string
	resolve                           resolver
	config                            ExecConfig
}

func newExec(o Options, c ExecConfig) *execSource {
	return &execSource{filepath.Join(o.StoreDir, "jobs"), o.Executable, o.BaseDir, o.WakeDir, o.Resolve, c}
}

var safeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]*$`)

// folder gives the job's folder as an absolute path.
func (e *execSource) folder(p Job) (jobFolder, error) {
	if !safeName.MatchString(p.TriggerID) {
		return "", fmt.Errorf("expected a UUID as the id of a trigger, got %q", p.TriggerID)
	}
	dir, err := filepath.Abs(filepath.Join(e.dir, p.TriggerID))
	return jobFolder(dir), err
}

func (e *execSource) StartKind() Start { return Idempotent }

func (e *execSource) Start(ctx context.Context, p Job) (string, error) {
	dir, err := e.folder(p)
	if err != nil {
		return "", err
	}
	env, err := e.environment()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(string(dir), 0o700); err != nil {
		return "", err
	}
	if err := durable.Sync(filepath.Dir(string(dir))); err != nil {
		return "", err
	}
	step("job.folder")
	if dir.has(resultFile) || dir.has(startedFile) {
		return itemKey(p), nil
	}
	if !dir.has(specFile) {
		spec, err := e.spec(p, dir)
		if err != nil {
			return "", err
		}
		if err := dir.write(specFile, spec); err != nil {
			return "", err
		}
	}
	step("job.spec")
	if err := e.spawn(ctx, dir, env); err != nil {
		return "", err
	}
	step("job.spawned")
	return itemKey(p), nil
}

func (e *execSource) spec(p Job, dir jobFolder) (jobSpec, error) {
	s := jobSpec{TriggerID: p.TriggerID, Command: e.config.Command, CWD: e.config.CWD, Timeout: e.config.Timeout}
	if !filepath.IsAbs(s.CWD) {
		s.CWD = filepath.Join(e.baseDir, s.CWD)
	}
	var err error
	if s.CWD, err = filepath.Abs(s.CWD); err != nil {
		return s, err
	}
	if e.wakeDir != "" {
		wake, err := filepath.Abs(e.wakeDir)
		if err != nil {
			return s, err
		}
		if s.Wake, err = filepath.Rel(string(dir), wake); err != nil {
			return s, err
		}
	}
	s.Input = marshal(jobInput{p.TriggerID, p.Spec.Process, p.Spec.FolderPath, p.Spec.FolderKey, p.Spec.InputArguments()})
	return s, nil
}

// environment is what the supervisor gets: evalrun's environment without its own variables, and the
// configured one in one variable.
func (e *execSource) environment() ([]string, error) {
	own := make(map[string]string, len(e.config.Env))
	for name, value := range e.config.Env {
		resolved, err := e.resolve.expand(value)
		if err != nil {
			return nil, fmt.Errorf("env.%s of the job: %w", name, err)
		}
		own[name] = resolved
	}
	return append(sandbox.Environ(os.Environ()), envVar+"="+string(marshal(own))), nil
}

// spawn starts the supervisor and returns when it has detached itself.
func (e *execSource) spawn(ctx context.Context, dir jobFolder, env []string) error {
	executable := e.executable
	if executable == "" {
		var err error
		if executable, err = os.Executable(); err != nil {
			return err
		}
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, executable, supervisorCommand, string(dir))
	cmd.Env, cmd.Dir, cmd.Stderr = env, string(dir), &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = 2 * time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the supervisor of the job could not be started: %w: %s", err, excerpt(stderr.Bytes()))
	}
	return nil
}

func (e *execSource) Find(_ context.Context, p Job) (string, bool, error) {
	dir, err := e.folder(p)
	return itemKey(p), dir.has(startedFile) || dir.has(resultFile), err
}

func (e *execSource) Check(ctx context.Context, p Job) (Status, error) {
	dir, err := e.folder(p)
	if err != nil {
		return Status{}, err
	}
	if !dir.has("") {
		return Status{Done: true, Fault: fault.New(fault.JobLost, "the job is lost: its folder in the store is gone")}, nil
	}
	// The order matters. "started" is written under the lock and followed by a result under the
	// same lock, so whoever saw the one, then the lock free, then no result, knows that there will
	// be none.
	started := dir.has(startedFile)
	_, held, err := lockHolder(dir.path(lockFile))
	if err != nil {
		return Status{}, err
	}
	if s, done, err := dir.status(); done || err != nil {
		return s, err
	}
	switch {
	case held:
		return Status{After: checkExec}, nil
	case started:
		return Status{Done: true, Fault: fault.New(fault.JobLost, "the job is lost: its supervisor ended without writing a result")}, nil
	}
	// A supervisor is on its way, or was killed before it began.
	_, err = e.Start(ctx, p)
	return Status{After: checkExec}, err
}

func (e *execSource) Cancel(_ context.Context, p Job) error {
	dir, err := e.folder(p)
	if err != nil || !dir.has("") || dir.has(resultFile) {
		return err
	}
	// A supervisor looks for this file after it has taken the lock: either it sees the file, or we
	// see the lock.
	if err := dir.replace(cancelFile, nil); err != nil {
		return err
	}
	pid, held, err := lockHolder(dir.path(lockFile))
	switch {
	case err != nil:
		return err
	case !held:
		return dir.endCommand()
	case pid <= 0:
		return errors.New("the job's supervisor is in another PID namespace and cannot be reached")
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return os.NewSyscallError("kill", err)
	}
	return nil
}
