package exec

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/jsonvalue"
)

// The files of an exec job's folder, in the order in which they come to be.
const (
	specFile = "spec.json" // what to run; written by Start
	lockFile = "lock"      // held by the supervisor
	// A process: the supervisor that is about to run the command. After this the command is never
	// run again.
	startedFile = "started"
	commandFile = "command"     // a process: the command
	stderrFile  = "stderr.log"  // what the command printed there
	cancelFile  = "cancel"      // somebody asked for the job to end
	resultFile  = "result.json" // a jobResult; the job is over
	logFile     = "supervisor.log"
)

// jobSpec is what a supervisor runs. The values of the job's environment are not in it, because
// they may be secrets.
type jobSpec struct {
	TriggerID string          `json:"triggerId"`
	Command   []string        `json:"command"`
	CWD       string          `json:"cwd"`
	Timeout   wait.Duration   `json:"timeout,omitzero"`
	Wake      string          `json:"wake,omitempty"` // relative to the job's folder
	Input     json.RawMessage `json:"input"`
}

// jobInput is the document that the command reads.
type jobInput struct {
	Key            string          `json:"key"`
	Process        string          `json:"process"`
	FolderPath     string          `json:"folderPath"`
	FolderKey      string          `json:"folderKey"`
	InputArguments json.RawMessage `json:"inputArguments"`
}

// jobResult is how a job ended. ExitCode is -1 if a signal ended the command, and null if it was
// never run.
type jobResult struct {
	ExitCode  *int            `json:"exitCode"`
	Payload   json.RawMessage `json:"payload"`
	Error     *wait.Error     `json:"error"`
	StartedAt time.Time       `json:"startedAt"`
	EndedAt   time.Time       `json:"endedAt"`
}

func failedJob(message string) jobResult {
	now := time.Now().UTC()
	return jobResult{
		Payload: json.RawMessage("null"), Error: &wait.Error{Code: string(fault.Job), Message: message},
		StartedAt: now, EndedAt: now,
	}
}

// process names a process beyond the reuse of its pid.
type process struct {
	PID       int    `json:"pid"`
	StartTime string `json:"startTime"`
	BootID    string `json:"bootId"`
}

func processOf(pid int) process {
	start, _ := startTime(pid) // a process that has ended already has none, and is then never taken for another
	return process{pid, start, bootID()}
}

// alive tells whether the process is still there.
func (p process) alive() bool {
	start, err := startTime(p.PID)
	return err == nil && start != "" && p == process{p.PID, start, bootID()}
}

// jobFolder is the path of a job's folder.
type jobFolder string

func (d jobFolder) path(name string) string { return filepath.Join(string(d), name) }

func (d jobFolder) has(name string) bool {
	_, err := os.Lstat(d.path(name))
	return err == nil
}

func (d jobFolder) write(name string, v any) error { return d.replace(name, jsonvalue.Marshal(v)) }

func (d jobFolder) replace(name string, data []byte) error {
	return durable.WriteFile(d.path(name), 0o600, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// read reads a file that may not be there.
func (d jobFolder) read(name string, into any) (found bool, err error) {
	b, err := os.ReadFile(d.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		return false, fmt.Errorf("%s of the job: %w", name, err)
	}
	return true, nil
}

// status reads the result; done is false if there is none yet.
func (d jobFolder) status() (s wait.Status, done bool, err error) {
	var r jobResult
	if done, err = d.read(resultFile, &r); err != nil || !done {
		return wait.Status{}, false, err
	}
	s = wait.Status{Done: true, Payload: r.Payload}
	if r.Error != nil {
		s = wait.Status{Done: true, Fault: fault.New(fault.Category(r.Error.Code), r.Error.Message)}
	}
	return s, true, nil
}

// endCommand ends a command that has outlived its supervisor.
func (d jobFolder) endCommand() error {
	var p process
	found, err := d.read(commandFile, &p)
	if err != nil || !found || !p.alive() {
		return err
	}
	if err := syscall.Kill(-p.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return os.NewSyscallError("kill", err)
	}
	return nil
}

// The lock of a job is a POSIX record lock, which a process holds until it ends, however it ends.
// Unlike flock it can be asked about without being taken: a check that took it even for a moment
// would look, to a supervisor that is just coming up, like another supervisor. A process must open
// the file once only, because closing any descriptor of it gives the lock up.

// takeLock takes the lock for as long as the process lives; ok is false if another process has it.
func takeLock(path string) (f *os.File, ok bool, err error) {
	if f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, false, err
	}
	err = syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart})
	switch {
	case errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES):
		return nil, false, f.Close()
	case err != nil:
		return nil, false, errors.Join(err, f.Close())
	}
	return f, true, nil
}

// lockHolder tells whether a process has the lock, and which; pid is not positive if it cannot be
// seen from here.
func lockHolder(path string) (pid int, held bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	asked := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	if err := errors.Join(syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &asked), f.Close()); err != nil {
		return 0, false, err
	}
	return int(asked.Pid), asked.Type != syscall.F_UNLCK, nil
}
