package sandbox

import (
	"fmt"
	"os"
)

// Space is a place for processes that something else than this package makes: a container of an
// engine. Its first process must be `evalrun sandbox-hold` (see [HoldArgs]), as root of the space.
type Space interface {
	// Enter makes the space unless it is there, with the Binds and the Visible paths of the config
	// in their places, and returns a copy of the connection to its first process, which the caller
	// closes.
	Enter(*Config) (*os.File, error)
	// Leave ends the space, if there is one, with all that is left in it. It is called when the
	// process has ended that was started first.
	Leave() error
}

// The places in a space that whoever makes it has to provide: evalrun's program, and the socket of
// type SOCK_SEQPACKET that its first process connects to, once.
const (
	InsideLine = insideRun + "/line.sock"

	holdCommand  = "sandbox-hold"
	visitCommand = "sandbox-visit"
)

// HoldArgs are the arguments of the first process of a space, the program among them.
func HoldArgs() []string { return []string{InsideExecutable, holdCommand} }

// forwardFile is where the init of a space finds the socket of a forward among its files.
func (s *Config) forwardFile(i int) string {
	return fmt.Sprintf("/proc/self/fd/%d", firstEntrance+len(s.entrances())+i)
}
