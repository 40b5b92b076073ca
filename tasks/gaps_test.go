package tasks

import (
	"path/filepath"
	"testing"
)

var (
	everything = Capabilities{NoNetwork: true, FileTree: true}
	withImages = Capabilities{NoNetwork: true, FileTree: true, Images: true}
)

// keys are those of the gaps of a task with this task.toml and these files.
func keys(t *testing.T, can Capabilities, document string, files map[string]string) []string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "task.toml", document)
	for name, content := range files {
		write(t, dir, name, content)
	}
	task, problems := Load(dir)
	if err := problems.Err(false); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, g := range task.Gaps(can) {
		if g.Reason == "" {
			t.Errorf("%s has no reason", g.Key)
		}
		out = append(out, g.Key)
	}
	return out
}

// The vectors R1 to R7, and every other thing that cannot be executed.
func TestGaps(t *testing.T) {
	step := "[[steps]]\nname = 'a'\n[[steps]]\nname = 'b'\n"
	for _, v := range []struct {
		name, document string
		want           []string
	}{
		{"R1 allowlist", "[environment]\nnetwork_mode = 'allowlist'\nallowed_hosts = ['a']", nil},
		{"R1 allowlist of the agent", "[agent]\nnetwork_mode = 'allowlist'\nallowed_hosts = ['a']", nil},
		{"R1 allowlist of a step", step + "[steps.verifier]\nnetwork_mode = 'allowlist'\nallowed_hosts = ['a']", nil},
		{"R1 allowlist of a verifier's environment", "[verifier.sandbox]\nnetwork_mode = 'allowlist'\nallowed_hosts = ['a']", nil},
		{"workdir that is the root", "[environment]\nworkdir = '/'", nil},
		{"workdir that is the agent's usual home", "[environment]\nworkdir = '/home/agent'", nil},
		{"workdir that is the solution's place", "[environment]\nworkdir = '/solution'", nil},
		{"R4 relative workdir", "[sandbox]\nworkdir = 'a'", []string{"sandbox.workdir"}},
		{"workdir among the logs", "[environment]\nworkdir = '/logs/'", []string{"environment.workdir"}},
		{"workdir that is the tests' place", "[environment]\nworkdir = '/app/../tests/a'", []string{"environment.workdir"}},
		{"workdir that covers the shell", "[environment]\nworkdir = '/usr/bin'", []string{"environment.workdir"}},
		{"workdir in the agent's home", "[environment]\nworkdir = '/home/agent/project'", nil},
		{"R5 absolute workdir", "[environment]\nworkdir = '/workspace'", nil},
		{"R6 supported task", "[environment]\nnetwork_mode = 'no-network'\ncpus = 4\n" + step, nil},
		{"R7 LLM judge", "[verifier]\ntype = 'llm-judge'", []string{"verifier.type"}},
		{"GPUs", "[environment]\ngpus = 1\ngpu_types = ['T4']", []string{"environment.gpu_types", "environment.gpus"}},
		{"TPUs", "[environment.tpu]\ntype = 'v6e'\ntopology = '2x4'", []string{"environment.tpu"}},
		{"Windows", "[environment]\nos = 'Windows'", []string{"environment.os"}},
		{"services", "artifacts = [{source = '/a', service = 'db'}, {source = 'a', service = 'main'}]\n[verifier]\nservice = 'db'\n" +
			"[[verifier.collect]]\ncommand = 'a'\n[[verifier.collect]]\ncommand = 'a'\nservice = 'db'\n[[environment.setup_commands]]\ncommand = 'a'\nservice = 'db'\n" +
			step + "artifacts = [{source = '/a', service = 'db'}]",
			[]string{"artifacts[0].service", "environment.setup_commands[0].service", "steps[1].artifacts[0].service", "verifier.collect[1].service", "verifier.service"}},
		{"setup commands", "[[environment.setup_commands]]\ncommand = 'a'\nhost_lock = 'l'\ncapture_dir = '/a'",
			[]string{"environment.setup_commands[0].capture_dir", "environment.setup_commands[0].host_lock"}},
		{"separate verifier", "[verifier]\nenvironment_mode = 'separate'", nil},
		{"separate verifier with an environment", "[verifier.environment]\ncpus = 1", nil},
		{"separate verifier with an image", "[verifier.environment]\ndocker_image = 'a'\ngpus = 1", []string{"verifier.environment.docker_image", "verifier.environment.gpus"}},
		{"T25 version", "version = '2.0'", nil},
		{"T5 version that is none", "version = 'abc'", []string{"schema_version"}},
		{"T5 old version", "version = '0.1'", nil},
		{"T5 hosts", "[environment]\nnetwork_mode = 'allowlist'\nallowed_hosts = ['*.a.b', '::1']", nil},
		{"T8 users", "agent.user = 'a b'\nverifier.user = -1\n" + step + "agent.user = 'Me'", []string{"agent.user", "steps[1].agent.user", "verifier.user"}},
		{"what is only read", "[agent]\nuser = 'a'\n[verifier.hardening]\n[environment]\nskills_dir = '/skills'", nil},
	} {
		t.Run(v.name, func(t *testing.T) {
			equal(t, "gaps", keys(t, everything, v.document, nil), v.want)
		})
	}
	t.Run("R3 no-network without isolation", func(t *testing.T) {
		equal(t, "gaps", keys(t, Capabilities{FileTree: true}, "[environment]\nallow_internet = false\n[verifier]\nnetwork_mode = 'no-network'\n", nil),
			[]string{"environment.network_mode", "verifier.network_mode"})
	})
	t.Run("absolute paths without a file tree", func(t *testing.T) {
		can := Capabilities{NoNetwork: true}
		equal(t, "workdir", keys(t, can, "[environment]\nworkdir = '/workspace'", nil), []string{"environment.workdir"})
		equal(t, "files", keys(t, can, "", map[string]string{"environment/a": ""}), []string(nil))
	})
}

// A task that names an image is not run on this machine's system, however little its Dockerfile
// does. Where images are run, only what names none that can be had is a gap.
func TestGapsOfImages(t *testing.T) {
	step := "\n[[steps]]\nname = 'a'\n[[steps]]\nname = 'b'\n"
	for _, v := range []struct {
		name, document string
		files          map[string]string
		want, left     []string
	}{
		{"none", "", map[string]string{"environment/data.txt": ""}, nil, nil},
		{"docker_image", "environment.docker_image = 'ubuntu:24.04'", nil, []string{"environment.docker_image"}, nil},
		{"unknown key", "environment.docker_imgae = 'a'", nil, []string{"environment.docker_imgae"}, []string{"environment.docker_imgae"}},
		{"unknown keys of other tables", "container = 'a'\n[docker]\n[sandbox]\ncompose_file = 'a'\nvm = true\n[verifier.environment]\nkubernetes = 1", nil,
			[]string{"container", "docker", "sandbox.compose_file", "sandbox.vm", "verifier.environment.kubernetes"}, []string{"container", "docker", "sandbox.compose_file", "sandbox.vm", "verifier.environment.kubernetes"}},
		{"unknown key that names none", "environment.cpu = 2\n[metadata]\nimage = 'a'", nil, nil, nil},
		{"image of a sandbox", "sandbox.image = 'ubuntu:24.04'", nil, []string{"sandbox.docker_image"}, nil},
		{"bugswarm_image_tag", "environment.bugswarm_image_tag = 'a'", nil, []string{"environment.bugswarm_image_tag"}, []string{"environment.bugswarm_image_tag"}},
		{"Dockerfile that does nothing", "", map[string]string{"environment/Dockerfile": "FROM ubuntu:24.04\nWORKDIR /app"}, []string{"environment/Dockerfile"}, nil},
		{"Dockerfile that copies", "", map[string]string{"environment/Dockerfile": "FROM a\nCOPY x /y", "environment/x": ""}, []string{"environment/Dockerfile"}, nil},
		{"Dockerfile that does more", "", map[string]string{"environment/Dockerfile": "FROM a\nRUN x\nRUN y"}, []string{"environment/Dockerfile"}, nil},
		{"image of the tests", "verifier.environment.docker_image = 'a'", nil, []string{"verifier.environment.docker_image"}, []string{"verifier.environment.docker_image"}},
		{"image of all steps' tests", "verifier.sandbox.docker_image = 'a'" + step, nil, []string{"verifier.sandbox.docker_image"}, []string{"verifier.sandbox.docker_image"}},
		{"image of a step's tests", step + "verifier.environment.docker_image = 'a'", nil, []string{"steps[1].verifier.environment.docker_image"}, []string{"steps[1].verifier.environment.docker_image"}},
		{"Dockerfile of the tests", "[verifier]\nenvironment_mode = 'separate'", map[string]string{"tests/Dockerfile": ""}, []string{"tests/Dockerfile"}, []string{"tests/Dockerfile"}},
		{"a Dockerfile among the tests", "", map[string]string{"tests/Dockerfile": ""}, nil, nil},
	} {
		t.Run(v.name, func(t *testing.T) {
			equal(t, "gaps", keys(t, everything, v.document, v.files), v.want)
			equal(t, "with images", keys(t, withImages, v.document, v.files), v.left)
		})
	}
}

func TestGapsOfFiles(t *testing.T) {
	for _, v := range []struct {
		name, document string
		files          map[string]string
		want           []string
	}{
		{"compose", "", map[string]string{"environment/docker-compose.yaml": "", "environment/compose.yml": ""}, []string{"environment/compose.yml", "environment/docker-compose.yaml"}},
		// Harbor reads docker-compose.yaml alone.
		{"compose files that are data", "", map[string]string{"environment/Dockerfile": "FROM a", "environment/docker-compose.yml": "", "environment/compose.yaml": ""}, nil},
		{"Dockerfile that is none", "", map[string]string{"environment/Dockerfile/x": ""}, []string{"environment/Dockerfile"}},
		{"both names of a folder", "[[steps]]\nname = 's'", map[string]string{"tests/a": "", "verifier/a": "", "steps/s/solution/a": "", "steps/s/oracle/a": ""},
			[]string{"steps/s/oracle", "verifier"}},
	} {
		t.Run(v.name, func(t *testing.T) {
			equal(t, "gaps", keys(t, withImages, v.document, v.files), v.want)
		})
	}
}

func TestGapReasons(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "task.toml", "[environment]\ngpus = 2\ndocker_image = 'ubuntu:24.04'")
	write(t, dir, "environment/Dockerfile", "FROM python:3\nRUN pip install x")
	task, _ := Load(dir)
	can := everything
	can.NoImages = "that takes --isolation image"
	var got []string
	for _, g := range task.Gaps(can) {
		got = append(got, g.String())
	}
	equal(t, "gaps", got, []string{
		"environment.docker_image: the task is to run in the image ubuntu:24.04, and images are not run here: that takes --isolation image",
		"environment.gpus: GPUs cannot be given to a task",
		"environment/Dockerfile: the task is to run in the image that this makes, and images are not built here: that takes --isolation image",
	})
}

// The published task that has every table cannot be run here, and each reason is said.
func TestGapsOfPublishedTask(t *testing.T) {
	task, _ := Load(filepath.Join(sharedTasks(t), "every-table"))
	var got []string
	for _, g := range task.Gaps(everything) {
		got = append(got, g.Key)
	}
	equal(t, "gaps", got, []string{"environment.docker_image", "environment.gpu_types", "environment.gpus", "environment.tpu", "verifier.environment.docker_image"})
}
