package function

import (
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/program"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// command returns the process of a segment, without its streams.
func (f *function) command(seg agent.Segment) (sandbox.Command, *fault.Fault) {
	env, bad := f.environ(seg)
	if bad != nil {
		return sandbox.Command{}, bad
	}
	dir := f.entry.Cwd
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(seg.BaseDir, dir)
	}
	if info, err := os.Stat(dir); err != nil {
		return sandbox.Command{}, fault.Newf(fault.Start, "the agent's working directory: %v", err)
	} else if !info.IsDir() {
		return sandbox.Command{}, fault.Newf(fault.Start, "the agent's working directory: %s is not a directory", dir)
	}
	path, bad := program.Find(f.entry.Command[0], dir, env)
	if bad != nil {
		return sandbox.Command{}, bad
	}
	return sandbox.Command{Marker: seg.Marker, Path: path, Args: f.entry.Command, Dir: dir, Env: env, Grace: f.opts.Grace,
		Ended: seg.Ended}, nil
}

// environ returns evalrun's environment without evalrun's own variables, with the rollout's trace
// parent. Then come the variables of the entry, those of the segment, and those that tell the agent
// where its files are. A later value overrides an earlier one.
func (f *function) environ(seg agent.Segment) ([]string, *fault.Fault) {
	env := append(sandbox.Environ(os.Environ()), agent.TraceparentVar+"="+seg.Traceparent())
	for _, name := range slices.Sorted(maps.Keys(f.entry.Env)) {
		value, unknown := f.opts.Expand(f.entry.Env[name])
		if unknown != "" {
			return nil, fault.Newf(fault.Start, "the agent's environment variable %s needs ${%s}, which is not set",
				name, unknown)
		}
		env = append(env, name+"="+value)
	}
	env = append(env, seg.Env...)
	env = append(env, EnvTraceFile+"="+filepath.Join(seg.Dir, record.FileTrace), EnvWorkspace+"="+seg.Workspace)
	if f.settings.Output == OutputFile {
		env = append(env, EnvOutputFile+"="+f.outputFile(seg))
	}
	return env, nil
}
