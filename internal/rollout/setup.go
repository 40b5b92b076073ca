package rollout

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"

	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/tasks"
)

// setup returns the setup that runs before the agent. Servers start each time, since they end with
// its process; commands run once.
func (s *sandboxSpec) setup(cfg *sandbox.Config, stage *tasks.Stage, first bool) (*sandbox.Setup, error) {
	out := &sandbox.Setup{Services: s.entrypoint()}
	for _, server := range s.servers {
		if !server.Started() {
			continue
		}
		dir := server.Cwd
		if dir == "" {
			dir = s.folders.Workdir
		}
		out.Services = append(out.Services, sandbox.SetupCommand{Args: append([]string{server.Command}, server.Args...),
			Dir: cfg.Path(dir), Env: variables(server.Env)})
		if address := addressOf(server.URL); address != "" {
			out.WaitFor = append(out.WaitFor, address)
		}
	}
	if s.task == nil {
		if out.Services == nil {
			return nil, nil
		}
		return out, nil
	}
	config := s.task.Config.Environment
	firstStage := first && (stage.Name == "" || stage.Name == s.task.Config.Steps[0].Name)
	for i, c := range config.SetupCommands {
		if !firstStage {
			break
		}
		env, err := tasks.ExpandEnv(fmt.Sprintf("environment.setup_commands[%d].env", i), c.Env, s.lookup)
		if err != nil {
			return nil, setupFault(err)
		}
		dir := c.Cwd
		if dir == "" {
			dir = s.folders.Workdir
		}
		out.Commands = append(out.Commands, sandbox.SetupCommand{Command: c.Command, Dir: cfg.Path(dir), Env: variables(env),
			User: c.User, Timeout: c.TimeoutSec.Duration()})
	}
	if stage.Workdir != "" && first && fileExists(filepath.Join(stage.Workdir, stepSetup)) {
		out.Commands = append(out.Commands, sandbox.SetupCommand{Args: []string{"/bin/bash", "./" + stepSetup},
			Dir: cfg.Path(s.folders.Workdir)})
	}
	check := config.Healthcheck
	if stage.Healthcheck != nil {
		check = stage.Healthcheck
	}
	if check != nil {
		out.Healthcheck = &sandbox.Healthcheck{
			SetupCommand: sandbox.SetupCommand{Command: check.Command, Dir: cfg.Path(s.folders.Workdir),
				Timeout: check.TimeoutSec.Duration()},
			Interval: check.IntervalSec.Duration(), StartPeriod: check.StartPeriodSec.Duration(),
			StartInterval: check.StartIntervalSec.Duration(), Retries: check.Retries,
		}
	}
	if out.Healthcheck == nil && s.compose != nil {
		out.Healthcheck = s.compose.Healthcheck
	}
	if out.Healthcheck == nil {
		out.Healthcheck = s.healthcheck()
	}
	if out.Services == nil && out.Commands == nil && out.Healthcheck == nil {
		return nil, nil
	}
	return out, nil
}

// stepSetup is a script that a step may bring along. As in Harbor, bash runs it in the working
// directory before the step.
const stepSetup = "setup.sh"

// addressOf returns host and port of a URL; empty if it has none.
func addressOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return ""
	}
	port := u.Port()
	if port == "" {
		port = map[bool]string{true: "443", false: "80"}[u.Scheme == "https"]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

func fileExists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
