package rollout

import (
	"cmp"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// skillFolders are where agents look for skills in their homes, by their names in the registry; it is
// where Harbor copies them. All others have the folder on which agents have agreed.
var skillFolders = map[string]string{
	"claude": ".claude/skills", "gemini": ".gemini/skills", "opencode": ".config/opencode/skills", "qwen": ".qwen/skills", "goose": ".config/goose/skills", "cursor": ".cursor/skills",
}

const commonSkills = ".agents/skills"

// copySkills is the command that gives an agent the skills of its task, which are a folder of its
// environment; nil if the task has none.
func (s *sandboxSpec) copySkills(entry agent.Entry, cfg *sandbox.Config) *sandbox.SetupCommand {
	if s.task == nil || s.task.Config.Environment.SkillsDir == "" || entry.ACP == nil {
		return nil
	}
	home := cfg.Path(s.folders.Home())
	folder := cmp.Or(skillFolders[cmp.Or(entry.Extends, entry.Name)], commonSkills)
	const script = `[ ! -d "$1" ] || { mkdir -p "$2" && cp -R "$1/." "$2/"; }`
	return &sandbox.SetupCommand{Args: []string{"/bin/sh", "-c", script, "sh", cfg.Path(s.task.Config.Environment.SkillsDir), home + "/" + folder}, Dir: cfg.Path(s.folders.Workdir)}
}
