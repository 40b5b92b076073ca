package agent

import "github.com/evalrun/evalrun/internal/sandbox"

// Sandbox describes the sandbox in which an agent is started.
type Sandbox struct {
	// Config says what its processes see of the machine. The agent itself adds the folders of its
	// program and the way to its model.
	Config sandbox.Config
	// Setup runs before the agent starts; nil means no setup.
	Setup *sandbox.Setup
	// Home and Cwd are the agent's home and its working directory as its processes see them.
	// Without a home a process has the home of its user in the image, and Env is all of its
	// environment.
	Home string
	Cwd  string
	// Env are the sandbox's own environment variables. Those of the agent's entry override them.
	Env []string
	// Sockets is a folder of this machine for unix sockets; its path is short.
	Sockets string
	// Executable is the evalrun program.
	Executable string
	// Arch is the architecture of the image as Go names it. Has reports whether the image has a path; it is asked
	// before anything runs there. It is nil without an image.
	Arch string
	Has  func(inside string) (bool, error)
}
