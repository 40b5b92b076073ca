package sandbox

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Expose leads connections to a Unix socket of this machine to 127.0.0.1:Port inside, or to
// [::1]:Port if nobody listens there: the reverse of a [Forward]. Each end is passed on by itself.
// If nobody listens at all the connection is closed.
type Expose struct {
	// Socket is the absolute path of the socket, of less than 104 bytes. Its folder must exist and the
	// path must be free. The socket is made when the process is started, and removed by Wait. Only
	// evalrun's own user can connect to it. So a space with such sockets can have one process at a
	// time.
	Socket string
	Port   int
}

// Spawn starts a program in the space for every connection to a Unix socket of this machine. The
// connection is the program's stdin and stdout; several connections are several programs.
//
// The end of the connection's input closes stdin, when the program has read what came before. If
// the program has not ended Grace after that, or after the whole connection was closed, its process
// group gets SIGTERM and after another Grace SIGKILL. The end of the program ends the rest of its
// group. It ends the connection when all of its output has been passed on. If a program cannot be
// started, the connection is closed. All programs end with the space.
type Spawn struct {
	// Socket is like that of an Expose. A connection that is made before the setup is done waits for
	// it.
	Socket string
	// Command is the program. Its Env is added to the environment of the process; its Timeout is not
	// used. Its stderr, up to 1 MiB for each connection, goes to Setup.Log, and so do failures to
	// start it and of the program itself. Without a Setup they are lost.
	Command SetupCommand
	// Grace is how long the program may take to end by itself, and again after SIGTERM; 0 means
	// DefaultGrace.
	Grace time.Duration
}

// maxSocketPath is the greatest length of a Unix socket's path on every system we build for.
const maxSocketPath = 103

// entrances are the sockets that lead into the space, in the order in which the init gets them.
func (s *Config) entrances() []string {
	if s == nil {
		return nil
	}
	var sockets []string
	for _, e := range s.Exposes {
		sockets = append(sockets, e.Socket)
	}
	for _, p := range s.Spawns {
		sockets = append(sockets, p.Socket)
	}
	return sockets
}

// checkEntrances finds errors in the ways into a space.
func (s *Config) checkEntrances() error {
	for _, e := range s.Exposes {
		if e.Port < 1 || e.Port > 65535 {
			return fmt.Errorf("exposed port %d: expected a number from 1 to 65535", e.Port)
		}
	}
	for _, p := range s.Spawns {
		if p.Command.String() == "" {
			return fmt.Errorf("socket %s: expected a program to start for its connections", p.Socket)
		}
	}
	taken := map[string]bool{}
	for _, socket := range s.entrances() {
		if len(socket) > maxSocketPath {
			return fmt.Errorf("socket %s: its path is %d bytes long, expected at most %d: use a folder with a shorter name",
				socket, len(socket), maxSocketPath)
		}
		if err := exists("folder of socket "+socket, filepath.Dir(socket)); err != nil {
			return err
		}
		if _, err := os.Lstat(socket); err == nil || taken[filepath.Clean(socket)] {
			return fmt.Errorf("socket %s: its place is taken", socket)
		}
		taken[filepath.Clean(socket)] = true
	}
	return nil
}

// listen makes the sockets that lead into the space, and gives them to the init as its files from 6
// on. The init accepts the connections but does not make the sockets. For that their folder would
// have to be in the space, where a process could connect past evalrun. It could also replace a
// socket by a link, which evalrun would follow to any socket of this machine.
func (s *supervised) listen(sockets []string) error {
	for _, socket := range sockets {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
		if err != nil {
			return fmt.Errorf("socket that leads into the space: %w", err)
		}
		s.sockets = append(s.sockets, socket)
		l.SetUnlinkOnClose(false)
		theirs, err := l.File()
		_ = l.Close() // theirs is a copy, and the only one, so that connections are refused as soon as the init is gone
		if err != nil {
			return fmt.Errorf("socket that leads into the space: %w", err)
		}
		s.theirs = append(s.theirs, theirs)
		if err := os.Chmod(socket, 0o600); err != nil {
			return fmt.Errorf("socket that leads into the space: %w", err)
		}
	}
	return nil
}
