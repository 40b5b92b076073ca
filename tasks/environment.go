package tasks

import (
	"math"
	"net/netip"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
)

// mainService is the compose service in which the agent works, the only one that there is here.
const mainService = "main"

// readEnvironment reads [environment] and the tables of the same kind. Its defaults are
// benchflow's.
func readEnvironment(r *input.Reader, n *input.Node) Environment {
	if n == nil {
		n = &input.Node{Kind: input.Object, Path: "environment"}
	}
	f := open(r, n)
	e := Environment{
		key:              n.Path,
		Network:          readNetwork(f),
		BuildTimeoutSec:  f.seconds("build_timeout_sec", 600),
		DockerImage:      f.String("docker_image", ""),
		OS:               readOS(f),
		CPUs:             f.float("cpus", 1),
		MemoryMB:         readSize(f, "memory", 2048),
		StorageMB:        readSize(f, "storage", 10240),
		GPUs:             f.whole("gpus", 0),
		GPUTypes:         f.Strings("gpu_types"),
		TPU:              readTPU(r, f.table("tpu")),
		MCPServers:       readServers(r, f.tables("mcp_servers"), defaultTransport),
		Env:              f.keyValues("env"),
		SkillsDir:        f.String("skills_dir", ""),
		Workdir:          f.String("workdir", ""),
		BugswarmImageTag: f.String("bugswarm_image_tag", ""),
		Healthcheck:      readHealthcheck(r, f.table("healthcheck")),
		SetupCommands:    readSetupCommands(r, f.tables("setup_commands")),
	}
	if image := f.Optional("image", input.String); image != nil {
		if f.Has("docker_image") {
			r.Errorf(image, `"image" is another name of "docker_image"; keep one of them`)
		}
		e.DockerImage, e.base = image.Text, true
	}
	if n := f.Optional("allow_internet", input.Bool); n != nil {
		allowed := n.Text == "true"
		switch {
		case e.NetworkMode == "" && !allowed:
			e.NetworkMode = NetworkNone
		case e.NetworkMode == NetworkPublic && !allowed:
			r.Errorf(n,
				"allow_internet = false contradicts network_mode = %q; remove allow_internet, which is deprecated", e.NetworkMode)
		case e.NetworkMode != "" && allowed != (e.NetworkMode == NetworkPublic):
			r.Warnf(n, "network_mode = %q counts; remove allow_internet, which is deprecated", e.NetworkMode)
		}
	}
	e.NetworkMode = or(e.NetworkMode, NetworkPublic)
	e.places = f.places()
	if f.Has("cpus") {
		e.limits.CPUs = e.CPUs
	}
	if f.Has("memory_mb") || f.Has("memory") {
		e.limits.MemoryMB = e.MemoryMB
	}
	if f.Has("storage_mb") || f.Has("storage") {
		e.limits.StorageMB = e.StorageMB
	}
	f.Done()
	return e
}

// readSize reads memory_mb or storage_mb, or the same under its deprecated name as a string such as
// "4G".
func readSize(f fields, name string, otherwise int) int {
	size := f.whole(name+"_mb", otherwise)
	n := f.Optional(name, input.String)
	if n == nil {
		return size
	}
	old, ok := parseSize(n.Text)
	switch {
	case !ok:
		f.r.Errorf(n, `expected a size such as "4G", "512M" or "2048K", got %q`, n.Text)
		return size
	case f.Has(name+"_mb") && old != size:
		f.r.Errorf(n, "%s contradicts %s_mb = %d; remove %s, which is deprecated", n.Text, name, size, name)
	}
	return old
}

func parseSize(s string) (mb int, ok bool) {
	s = strings.ToUpper(strings.TrimSpace(s))
	if s == "" {
		return 0, false
	}
	factor, known := map[byte]float64{'G': 1024, 'M': 1, 'K': 1.0 / 1024}[s[len(s)-1]]
	v, valid := finite(s[:len(s)-1])
	if !known || !valid || v < 0 || v*factor > math.MaxInt32 {
		return 0, false
	}
	return int(v * factor), true
}

func finite(s string) (float64, bool) {
	v, err := strconv.ParseFloat(s, 64)
	return v, err == nil && !math.IsInf(v, 0) && !math.IsNaN(v)
}

func readOS(f fields) string {
	n := f.Optional("os", input.String)
	if n == nil {
		return "linux"
	}
	os := strings.ToLower(n.Text)
	if os != "linux" && os != "windows" {
		f.r.Errorf(n, "expected one of linux, windows, got %q%s", n.Text, input.Suggest(os, []string{"linux", "windows"}))
	}
	return os
}

// hostName matches a name, of which parts may be wildcards.
var hostName = regexp.MustCompile(`^(\*|[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)(\.(\*|[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?))*$`)

// isHost reports whether s is a host name, an address (also in brackets), or a range of addresses.
func isHost(s string) bool {
	if hostName.MatchString(s) {
		return true
	}
	if inner, ok := strings.CutPrefix(s, "["); ok {
		if inner, ok = strings.CutSuffix(inner, "]"); !ok {
			return false
		}
		s = inner
	}
	_, err := netip.ParseAddr(s)
	_, notPrefix := netip.ParsePrefix(s)
	return err == nil || notPrefix == nil
}

// readNetwork reads network_mode and allowed_hosts, which go together.
func readNetwork(f fields) Network {
	net := Network{NetworkMode: f.Enum("network_mode", "", NetworkPublic, NetworkNone, NetworkAllowlist)}
	n := f.Optional("allowed_hosts", input.Array)
	for i, host := range f.Strings("allowed_hosts") {
		host = strings.ToLower(strings.TrimSuffix(strings.TrimSpace(host), "."))
		if !isHost(host) {
			f.r.Errorf(n,
				"expected host names, addresses or ranges of addresses alone, without scheme, port or path, got %q at %d", host, i)
		}
		net.AllowedHosts = append(net.AllowedHosts, host)
	}
	switch {
	case net.NetworkMode == NetworkAllowlist && len(net.AllowedHosts) == 0:
		f.r.Errorf(f.Get("network_mode"), "an allowlist needs allowed_hosts")
	case net.NetworkMode != NetworkAllowlist && len(net.AllowedHosts) > 0:
		f.r.Errorf(n, "hosts are listed, so network_mode must be %q", NetworkAllowlist)
	case net.NetworkMode == "" && n != nil:
		f.r.Errorf(n, "no host is listed; remove the key, or set network_mode to %q to cut the network off", NetworkNone)
	}
	return net
}

var topology = regexp.MustCompile(`^[1-9][0-9]*(x[1-9][0-9]*)+$`)

func readTPU(r *input.Reader, n *input.Node) *TPU {
	if n == nil {
		return nil
	}
	f := open(r, n)
	tpu := &TPU{Type: f.RequiredString("type"), Topology: strings.TrimSpace(f.RequiredString("topology"))}
	if tpu.Topology != "" && !topology.MatchString(tpu.Topology) {
		r.Errorf(f.Get("topology"), "expected dimensions such as \"2x4\", got %q", tpu.Topology)
	}
	f.Done()
	return tpu
}

// Chips returns the number of chips of the slice.
func (t TPU) Chips() int {
	chips := 1
	for side := range strings.SplitSeq(t.Topology, "x") {
		n, _ := strconv.Atoi(side) // digits, as the pattern says
		chips *= n
	}
	return chips
}

func readHealthcheck(r *input.Reader, n *input.Node) *Healthcheck {
	if n == nil {
		return nil
	}
	f := open(r, n)
	h := &Healthcheck{
		Command: f.RequiredString("command"), IntervalSec: f.seconds("interval_sec", 5), TimeoutSec: f.timeout(30),
		StartPeriodSec:   f.seconds("start_period_sec", 0),
		StartIntervalSec: f.seconds("start_interval_sec", 5), Retries: f.whole("retries", 3),
	}
	f.Done()
	return h
}

func readSetupCommands(r *input.Reader, items []*input.Node) []SetupCommand {
	var out []SetupCommand
	for _, item := range items {
		f := open(r, item)
		c := SetupCommand{
			Command: f.text("command"), TimeoutSec: f.timeout(600),
			Cwd: f.String("cwd", ""), Env: f.keyValues("env"), User: f.user(),
			Service: f.service(mainService), HostLock: f.String("host_lock", ""), CaptureDir: f.String("capture_dir", ""),
			CaptureDirB64Env:        f.String("capture_dir_b64_env", ""),
			CaptureDirB64EnvFileVar: f.String("capture_dir_b64_env_file_var", ""),
		}
		f.Required("command", input.String)
		for _, name := range []string{"cwd", "capture_dir"} {
			if n := f.Optional(name, input.String); n != nil && !path.IsAbs(n.Text) {
				r.Errorf(n, "expected an absolute path, got %q", n.Text)
			}
		}
		f.Done()
		out = append(out, c)
	}
	return out
}

// keyIn returns the place of the table in the file, or its usual place if that is not known.
func (e *Environment) keyIn(usual string) string { return or(e.key, usual) }
