package sandbox

import (
	"errors"
	"slices"
)

// Root is a file system that takes the place of this machine's. It is an overlay of Linux: the root
// of an image, which nothing changes, and above it the changes of a rollout's processes. It is
// mounted where only the space sees it, so nothing is left of it when the space ends.
type Root struct {
	// Lower are the folders of the image's layers, the uppermost first.
	Lower []string
	// Volumes are paths of the image at which a folder is made where there is nothing.
	Volumes []string
	// Upper, Work and Merged are folders of one file system of this machine. Upper holds the changes,
	// Work what the kernel needs for them, and Merged nothing. A copy of Upper with its devices,
	// owners and extended attributes is complete. Work is empty before a space begins.
	Upper, Work, Merged string
}

func (r *Root) check() error {
	if r == nil {
		return errors.New("isolation \"image\" needs a root")
	}
	if len(r.Lower) == 0 {
		return errors.New("isolation \"image\" needs an image")
	}
	for _, dir := range slices.Concat(r.Lower, []string{r.Upper, r.Work, r.Merged}) {
		if err := exists("folder of the root", dir); err != nil {
			return err
		}
	}
	return nil
}

// rootCommand is the hidden command that mounts a root and starts bubblewrap in it, or hands out
// the mounted root.
const rootCommand = "sandbox-root"

// rootOrders are the orders for that command, in a file in memory.
type rootOrders struct {
	Root
	// InUser says that the command runs in a user namespace, as it does for everybody but root.
	InUser bool
	// Rooms are the places for which room is made in the root before anything is mounted there.
	Rooms []room
	// Program is started then, with Args. Without one the root is sent over the socket that is file 3.
	Program string
	Args    []string
	// User is the user of the root whose number and capabilities replace the marks in Args; empty if
	// they have none.
	User string
}

// room is a place in a root for which room is made.
type room struct {
	// Path is relative to the root.
	Path string
	Kind roomKind
}

type roomKind int

const (
	roomFolder roomKind = iota
	roomFile
	roomNothing // anything there is removed
)

// The marks stand for the numbers of a user and of its group, and for options that give it
// capabilities.
const (
	userMark         = "\x00uid"
	groupMark        = "\x00gid"
	capabilitiesMark = "\x00capabilities"
)
