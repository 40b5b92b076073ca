package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// imageOrders are the orders for an init that runs in the root of an image.
type imageOrders struct {
	User string
	Own  []string
	// Switch says that the init is root and starts the processes as the user.
	Switch bool
}

// prepareImage makes the working directory and gives the user the paths that are to be his.
func (in *initProcess) prepareImage() error {
	if in.Image == nil {
		return nil
	}
	if err := os.MkdirAll(string(in.Dir), 0o755); err != nil {
		return fmt.Errorf("make the working directory: %w", err)
	}
	who, err := in.account("")
	if err != nil || !in.Image.Switch {
		return err
	}
	for _, path := range in.Image.Own {
		if err := os.Lchown(path, who.uid, who.gid); err != nil {
			return fmt.Errorf("give the user its folder: %w", err)
		}
	}
	if who.uid == 0 {
		return nil
	}
	for fd := range 3 { // otherwise the user could not open /dev/stdout and the like
		if err := syscall.Fchown(fd, who.uid, who.gid); err != nil {
			return fmt.Errorf("give the user its output: %w", err)
		}
	}
	return nil
}

// account finds a user in the root as it is now; an empty name means that of the process.
func (in *initProcess) account(user string) (account, error) {
	if user == "" {
		user = in.Image.User
	}
	return findAccount(user, func(name string) ([]byte, error) {
		return readDatabase(func(flag int) (*os.File, error) { return os.OpenFile("/"+name, flag, 0) })
	})
}

// become makes a command run as a user of the image, with the user's HOME if no other is set.
func (in *initProcess) become(cmd *exec.Cmd, user string) error {
	if in.Image == nil {
		return nil
	}
	who, err := in.account(user)
	if err != nil {
		return err
	}
	if !hasVariable(cmd.Env, "HOME") {
		cmd.Env = append(cmd.Env, "HOME="+who.home)
	}
	if in.Image.Switch {
		groups := make([]uint32, len(who.groups))
		for i, g := range who.groups {
			groups[i] = uint32(g)
		}
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(who.uid), Gid: uint32(who.gid), Groups: groups}
	}
	return nil
}

func hasVariable(env []string, name string) bool {
	for _, e := range env {
		if strings.HasPrefix(e, name+"=") {
			return true
		}
	}
	return false
}
