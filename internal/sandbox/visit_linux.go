package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"golang.org/x/sys/unix"
)

// visitOrder is the order for the first process of a space to start something. The files of the
// process come with it, and behind them a socket that gets its exit status.
type visitOrder struct {
	Env []string
	// Shared is [Command].Shared.
	Shared bool
}

// maxVisitFiles is how many files one message can carry on Linux.
const maxVisitFiles = 253

// enter lets the first process of the space start cmd, which is an init. A process here stands for
// it. The sockets of forwards become files of the init, so that no file of the space leads to them.
func (s *Config) enter(cmd *exec.Cmd, shared bool) error {
	line, err := s.Space.Enter(s)
	if err != nil {
		return err
	}
	for _, f := range s.Forwards {
		fd, err := unix.Open(f.Socket, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return errors.Join(fmt.Errorf("forward to socket %s: %w", f.Socket, err), line.Close())
		}
		cmd.ExtraFiles = append(cmd.ExtraFiles, os.NewFile(uintptr(fd), f.Socket))
	}
	files := 3 + len(cmd.ExtraFiles)
	if files >= maxVisitFiles {
		return errors.Join(fmt.Errorf("%d files are too many for a container", files), line.Close())
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, line)
	cmd.Args = []string{cmd.Path, visitCommand, strconv.Itoa(files), strconv.FormatBool(shared)}
	return nil
}

// visit hands the files of this process to the first process of a space, which is connected to the
// last of them. It ends with the status of the process that is started there.
func visit(args []string) int {
	files, err := strconv.Atoi(args[0])
	if err != nil {
		return initFailed
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return initFailed
	}
	order, err := json.Marshal(visitOrder{Env: os.Environ(), Shared: args[1] == "true"})
	if err != nil {
		return initFailed
	}
	given := make([]int, files, files+1)
	for i := range given {
		given[i] = i
	}
	if err := unix.Sendmsg(files, order, unix.UnixRights(append(given, pair[1])...), nil, 0); err != nil {
		fmt.Fprintln(os.Stderr, "the container has ended:", err)
		return initFailed
	}
	for _, fd := range append(given, files, pair[1]) {
		_ = unix.Close(fd) // they belong to the other side now
	}
	var status [1]byte
	for {
		n, err := unix.Read(pair[0], status[:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || n == 0:
			return 128 + int(unix.SIGKILL) // the space is gone
		default:
			return int(status[0])
		}
	}
}
