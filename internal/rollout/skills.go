package rollout

import (
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// copySkills returns the command that copies the skills of a task, which are in a folder of its
// environment, for the agent; nil if the task has none.
func (s *sandboxSpec) copySkills(entry agent.Entry, cfg *sandbox.Config) *sandbox.SetupCommand {
	folder := entry.Skills()
	if s.task == nil || s.task.Config.Environment.SkillsDir == "" || folder == "" {
		return nil
	}
	home := cfg.Path(s.folders.Home())
	const script = `[ ! -d "$1" ] || { mkdir -p "$2" && cp -R "$1/." "$2/"; }`
	return &sandbox.SetupCommand{Args: []string{"/bin/sh", "-c", script, "sh",
		cfg.Path(s.task.Config.Environment.SkillsDir), home + "/" + folder}, Dir: cfg.Path(s.folders.Workdir)}
}
