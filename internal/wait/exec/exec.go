// Package exec is the source of jobs that are local commands, which outlive evalrun. Its only state
// is a folder a job. [SuperviseMain] is the process that a job runs under.
package exec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/jsonvalue"
	"github.com/evalrun/evalrun/internal/wake"
)

const (
	// supervisorCommand is the hidden command that calls [SuperviseMain].
	supervisorCommand = "job-supervisor"
	// ownPrefix begins the names of evalrun's own environment variables, which a job does not get:
	// one of them marks the processes of a rollout, and those end with it.
	ownPrefix = "EVALRUN_"
	// envVar carries the configured environment of the job to its supervisor, as a JSON object.
	envVar = ownPrefix + "JOB_ENV"
	// webhookVar is the webhook of the job, by which it may answer before it ends.
	webhookVar = ownPrefix + "WEBHOOK_URL"
	// checkExec is how soon to ask again for a job whose end is also told by a datagram.
	checkExec = 5 * time.Second
)

// step is called between the steps of starting and running a job; tests stop the process there.
var step = failpoint.Hit

// source implements wait.Source. Each job has a folder and a supervisor, a process of its own
// session that runs the command and writes the result. The lock on the folder and the file
// "started" make sure that a command is run once at most, whoever is killed when; so Start and
// Check may start a supervisor again whenever in doubt.
type source struct {
	o      wait.Env
	config Config
}

// New returns the source for one entry of the eval set's jobs.
func New(o wait.Env, config Config) wait.Source { return &source{o, config} }

var safeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]*$`)

// folder gives the job's folder as an absolute path.
func (s *source) folder(j wait.Job) (jobFolder, error) {
	if !safeName.MatchString(j.TriggerID) {
		return "", fmt.Errorf("expected a UUID as the id of a trigger, got %q", j.TriggerID)
	}
	dir, err := filepath.Abs(files.Store(s.o.StoreDir).Job(j.TriggerID))
	return jobFolder(dir), err
}

// StartKind implements wait.Source. A folder tells whether its job was started.
func (s *source) StartKind() wait.Start { return wait.Idempotent }

// Start implements wait.Source.
func (s *source) Start(ctx context.Context, j wait.Job) (string, error) {
	dir, err := s.folder(j)
	if err != nil {
		return "", err
	}
	env, err := s.environment(j)
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
		return j.OwnKey(), nil
	}
	if !dir.has(specFile) {
		spec, err := s.spec(j, dir)
		if err != nil {
			return "", err
		}
		if err := dir.write(specFile, spec); err != nil {
			return "", err
		}
	}
	step("job.spec")
	if err := s.spawn(ctx, dir, env); err != nil {
		return "", err
	}
	step("job.spawned")
	return j.OwnKey(), nil
}

// spec returns what the supervisor of a job reads in its folder.
func (s *source) spec(j wait.Job, dir jobFolder) (spec jobSpec, err error) {
	spec = jobSpec{TriggerID: j.TriggerID, Command: s.config.Command, CWD: s.config.CWD, Timeout: s.config.Timeout}
	if !filepath.IsAbs(spec.CWD) {
		spec.CWD = filepath.Join(s.o.BaseDir, spec.CWD)
	}
	if spec.CWD, err = filepath.Abs(spec.CWD); err != nil {
		return spec, err
	}
	listeners, err := filepath.Abs(files.Store(s.o.StoreDir).JobsWake())
	if err != nil {
		return spec, err
	}
	if spec.Wake, err = filepath.Rel(string(dir), listeners); err != nil {
		return spec, err
	}
	spec.Input = jsonvalue.Marshal(jobInput{
		j.TriggerID, j.Spec.Process, j.Spec.FolderPath, j.Spec.FolderKey, j.Spec.InputArguments(),
	})
	return spec, nil
}

// environment returns what the supervisor gets: evalrun's environment without its own variables,
// and in one variable that of the job. The latter is the configured one, its webhook and what goes
// with each job.
func (s *source) environment(j wait.Job) ([]string, error) {
	own := j.Environ()
	if j.WebhookURL != "" {
		own[webhookVar] = j.WebhookURL
	}
	for name, value := range s.config.Env {
		resolved, err := s.o.Resolve.Expand(value)
		if err != nil {
			return nil, fmt.Errorf("env.%s of the job: %w", name, err)
		}
		own[name] = resolved
	}
	return append(sandbox.Environ(os.Environ()), envVar+"="+string(jsonvalue.Marshal(own))), nil
}

// spawn starts the supervisor and returns when it has detached itself. A program that does not know
// the command of the supervisor, because it is not evalrun, would start itself here again and
// again; the second one ends that.
func (s *source) spawn(ctx context.Context, dir jobFolder, env []string) error {
	if _, ok := os.LookupEnv(envVar); ok {
		return fmt.Errorf(
			"this program was started as %s, which it does not know; local jobs need evalrun itself, whose path is an option of the store",
			supervisorCommand)
	}
	executable := s.o.Executable
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
		return fmt.Errorf("the supervisor of the job could not be started: %w: %s", err, jsonvalue.Excerpt(stderr.Bytes()))
	}
	return nil
}

// Find implements wait.Source.
func (s *source) Find(_ context.Context, j wait.Job) (string, bool, error) {
	dir, err := s.folder(j)
	return j.OwnKey(), dir.has(startedFile) || dir.has(resultFile), err
}

// Check implements wait.Source.
func (s *source) Check(ctx context.Context, j wait.Job) (wait.Status, error) {
	dir, err := s.folder(j)
	if err != nil {
		return wait.Status{}, err
	}
	if !dir.has("") {
		return wait.Status{Done: true, Fault: fault.New(fault.JobLost,
			"the job is lost: its folder in the store is gone")}, nil
	}
	// The order matters. "started" is written under the lock and followed by a result under the
	// same lock, so whoever saw the one, then the lock free, then no result, knows that there will
	// be none.
	started := dir.has(startedFile)
	_, held, err := lockHolder(dir.path(lockFile))
	if err != nil {
		return wait.Status{}, err
	}
	if s, done, err := dir.status(); done || err != nil {
		return s, err
	}
	switch {
	case held:
		return wait.Status{After: checkExec}, nil
	case started:
		return wait.Status{Done: true, Fault: fault.New(fault.JobLost,
			"the job is lost: its supervisor ended without writing a result")}, nil
	}
	// A supervisor is on its way, or was killed before it began.
	_, err = s.Start(ctx, j)
	return wait.Status{After: checkExec}, err
}

// Cancel implements wait.Source.
func (s *source) Cancel(_ context.Context, j wait.Job) error {
	dir, err := s.folder(j)
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

// endWord begins the message of a job that is done. The id of its trigger follows.
const endWord = "job"

// Listen calls done with the id of the trigger of each job that ends on this machine, until stop is
// called. A job whose message is lost is found when it is asked for.
func Listen(storeDir string, done func(triggerID string)) (stop func() error, err error) {
	socket, err := wake.Listen(files.Store(storeDir).JobsWake(), func(message string) {
		if words := strings.Fields(message); len(words) == 2 && words[0] == endWord {
			done(words[1])
		}
	})
	return socket.Close, err
}

// tellEnd tells those who listen that the job is done.
func (s jobSpec) tellEnd() {
	if s.Wake != "" {
		wake.Tell(s.Wake, endWord+" "+s.TriggerID+"\n")
	}
}
