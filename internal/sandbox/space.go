package sandbox

import (
	"fmt"
	"os"
)

// Space is a place for processes that is made outside of this package: a container of an engine.
// Its first process must be `evalrun sandbox-hold` (see [HoldArgs]), as root of the space.
type Space interface {
	// Enter makes the space unless it exists, with the Binds and the Visible paths of the config in
	// their places. It returns a copy of the connection to its first process, which the caller closes.
	Enter(*Config) (*os.File, error)
	// Leave ends the space, if there is one, with everything that is left in it. It is called when the
	// process that was started first has ended.
	Leave() error
}

// The maker of a space has to provide these places in it: evalrun's program, and the socket of type
// SOCK_SEQPACKET that its first process connects to, once.
const (
	InsideLine = insideRun + "/line.sock"

	holdCommand  = "sandbox-hold"
	visitCommand = "sandbox-visit"
)

// HoldArgs are the arguments of the first process of a space, the program among them.
func HoldArgs() []string { return []string{InsideExecutable, holdCommand} }

// forwardFile is the place of the socket of a forward among the files of a space's init.
func (s *Config) forwardFile(i int) string {
	return fmt.Sprintf("/proc/self/fd/%d", firstEntrance+len(s.entrances())+i)
}
