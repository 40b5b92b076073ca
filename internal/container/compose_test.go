package container

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

// composeOf writes a compose file and reads it.
func composeOf(t *testing.T, text string) (*Compose, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ComposeFile), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "data", "greeting"), []byte("from the folder\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return ReadCompose(filepath.Join(dir, ComposeFile), func(name string) (string, bool) { return "value", name == "KNOWN" })
}

// Whatever would give a service a part of this machine is refused, with its line and key.
func TestHostileComposeFilesAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"privileged":           {"services:\n  main:\n    privileged: true\n", ":3:17: services.main.privileged: privileged is refused"},
		"privileged service":   {"services:\n  db:\n    image: x\n    privileged: true\n", ":4:17: services.db.privileged: privileged is refused"},
		"host folder":          {"services:\n  main:\n    volumes:\n      - /etc:/host\n", ":4:9: services.main.volumes[0]: /etc is refused"},
		"host folder, long":    {"services:\n  db:\n    volumes:\n      - type: bind\n        source: /\n        target: /host\n", ":5:17: services.db.volumes[0].source: / is refused"},
		"docker.sock":          {"services:\n  db:\n    volumes: [\"/var/run/docker.sock:/var/run/docker.sock\"]\n", ":3:15: services.db.volumes[0]: "},
		"out of the folder":    {"services:\n  db:\n    volumes: [\"./../../x:/x\"]\n", ":3:15: services.db.volumes[0]: "},
		"home":                 {"services:\n  db:\n    volumes: [\"~/.ssh:/x\"]\n", ":3:15: services.db.volumes[0]: "},
		"host network":         {"services:\n  main:\n    network_mode: host\n", ":3:19: services.main.network_mode: network_mode is refused"},
		"another's network":    {"services:\n  main:\n    network_mode: container:other\n", "services.main.network_mode: network_mode is refused"},
		"host pids":            {"services:\n  db:\n    pid: host\n", ":3:10: services.db.pid: pid is refused"},
		"host ipc":             {"services:\n  db:\n    ipc: host\n", "services.db.ipc: ipc is refused"},
		"capabilities":         {"services:\n  db:\n    cap_add: [SYS_ADMIN]\n", ":3:14: services.db.cap_add: cap_add is refused"},
		"devices":              {"services:\n  db:\n    devices: [/dev/sda]\n", "services.db.devices: devices is refused"},
		"security":             {"services:\n  db:\n    security_opt: [seccomp=unconfined]\n", "services.db.security_opt: security_opt is refused"},
		"disguised volume":     {"services: {}\nvolumes:\n  v:\n    driver_opts: {type: none, o: bind, device: /}\n", ":4:18: volumes.v.driver_opts: driver_opts is refused"},
		"another's volume":     {"services: {}\nvolumes:\n  v:\n    external: true\n", "volumes.v.external: external is refused"},
		"another's network 2":  {"services: {}\nnetworks:\n  n:\n    external: true\n", "networks.n.external: external is refused"},
		"host's namespace":     {"services: {}\nnetworks:\n  n:\n    driver: host\n", `networks.n.driver: a network with the driver "host" is not made`},
		"build elsewhere":      {"services:\n  db:\n    build: /etc\n", ":3:12: services.db.build: /etc is refused"},
		"build with rights":    {"services:\n  db:\n    build:\n      context: .\n      privileged: true\n", "services.db.build.privileged: privileged is refused"},
		"a Dockerfile outside": {"services:\n  db:\n    build:\n      context: .\n      dockerfile: ../../etc/passwd\n", "services.db.build.dockerfile: expected a path in the build context"},
		"a variable of ours":   {"services:\n  db:\n    image: x\n    environment: [\"A=$HOME\"]\n", ":4:19: services.db.environment[0]: the variable HOME is not set"},
		"host secrets":         {"services: {}\nsecrets:\n  s: {file: /etc/shadow}\n", ":3:3: secrets: secrets is refused"},
		"include":              {"services: {}\ninclude: [/etc/x.yaml]\n", "include: include is refused"},
		"a volume elsewhere":   {"services: {}\nvolumes:\n  ../x: {}\n", `"../x" cannot be the name of a volume`},
		"another image":        {"services:\n  main:\n    image: x\n", "services.main.image: main runs in the task's image"},
		"another build":        {"services:\n  main:\n    build: {context: ., target: x}\n", "services.main.build: main is built of environment/Dockerfile as it is"},
		"main's image":         {"services:\n  db:\n    image: ${MAIN_IMAGE_NAME}\n", "services.db.image: the image of main is run for main alone"},
		"no image":             {"services:\n  db:\n    command: x\n", "services.db: the service needs an image"},
		"a name elsewhere":     {"services:\n  db:\n    image: x\n    networks: {default: {aliases: [y]}}\n", "services.db.networks.default.aliases: the key aliases is not supported"},
		"nobody to wait for":   {"services:\n  db:\n    image: x\n    depends_on: [y]\n", `:4:18: services.db.depends_on[0]: there is no service "y" to wait for`},
		"a circle":             {"services:\n  a: {image: x, depends_on: [b]}\n  b: {image: x, depends_on: {a: {condition: service_healthy}}}\n", "services: some services wait for each other"},
		"what nobody knows":    {"services:\n  db:\n    frobnicate: 1\n", ":3:17: services.db.frobnicate: the key frobnicate is not supported"},
	} {
		if _, err := composeOf(t, c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// A command that is one text has the words that a shell would make of it. Of what only a shell can run nothing is left
// out in silence.
func TestWordsOfACommand(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`sh -c "a; b" 'c d'`: "sh|-c|a; b|c d", "a && b": "words without", "a 'b": "a command whose quotes are closed",
	} {
		spec, err := specOf(map[string]any{"command": text})
		if err == nil && strings.Join(spec.Cmd, "|") != want || err != nil && !strings.Contains(err.Error(), "command: expected "+want) {
			t.Errorf("%s: got %q, %v, want %s", text, spec.Cmd, err, want)
		}
	}
}

// Two contexts that differ in what nobody can read would otherwise be one image. Of a setting of the
// kernel that can only be written not even root can read anything.
func TestABuildContextThatCannotBeRead(t *testing.T) {
	t.Parallel()
	const dir, file = "/proc/sys/net/ipv4/route", "/proc/sys/net/ipv4/route/flush"
	if _, err := os.Stat(file); err != nil {
		t.Skip(err)
	}
	if _, err := builtImage(map[string]any{"context": dir}); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("got %v, want an error with the file's name", err)
	}
}

// A file as Harbor has them changes nothing in main.
func TestHarborsOwnSettings(t *testing.T) {
	t.Parallel()
	c, err := composeOf(t, `
services:
  main:
    build: {context: "${CONTEXT_DIR}"}
    image: ${MAIN_IMAGE_NAME}
    command: ["sh", "-c", "sleep infinity"]
    environment: ["TEST_DIR=${TEST_DIR}"]
    ports: ["8080:80"]
    volumes:
      - ${HOST_VERIFIER_LOGS_PATH}:${ENV_VERIFIER_LOGS_PATH}
      - ${HOST_AGENT_LOGS_PATH}:${ENV_AGENT_LOGS_PATH}
    deploy: {resources: {limits: {cpus: "${CPUS}", memory: "${MEMORY}"}}}
`)
	if err != nil || len(c.Env) != 1 || c.Env[0] != "TEST_DIR=/tests" || len(c.volumes) > 0 {
		t.Errorf("%+v, %v", c, err)
	}
}

// Services are built, healthy before the agent begins, and gone afterwards, with their networks and
// volumes.
func TestServicesRunBesideTheContainer(t *testing.T) {
	t.Parallel()
	e := podman(t)
	compose, err := composeOf(t, `
services:
  main:
    build: .
    depends_on:
      web: {condition: service_healthy}
      seed: {condition: service_completed_successfully}
    environment: {WEB: "web:8000"}
    volumes: ["shared:/shared"]
  web:
    image: `+baseImage+`
    command: sh -c "sleep 1; cd /shared; exec python3 -m http.server 8000"
    volumes: ["shared:/shared", "./data:/data:ro"]
    healthcheck:
      test: ["CMD", "curl", "-sf", "http://127.0.0.1:8000/it's"]
      interval: 500ms
      retries: 60
  seed:
    image: `+baseImage+`
    command: ["sh", "-c", "cp /data/greeting \"/shared/it's\""]
    volumes: ["shared:/shared", "./data:/data:ro"]
volumes:
  shared: {}
`)
	if err != nil {
		t.Fatal(err)
	}
	rollout, volumes := rolloutOf(t), t.TempDir()
	services, err := e.NewServices(ServicesSpec{Compose: compose, Rollout: rollout, Internal: true, Volumes: volumes})
	testenv.Need(t, testenv.Podman, err)
	t.Cleanup(func() {
		if err := services.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if err := services.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, cfg := box(t, e, Spec{Services: services})
	if got, want := shell(t, cfg, `curl -sf "http://web:8000/it's"; cat "/shared/it's"; curl -s -m 2 http://deb.debian.org/ && echo the network is there`), "from the folder\nfrom the folder\nexit status"; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if mountOf(cfg.Root.Merged) != "" || c.id != "" {
		t.Error("the container is still there")
	}
	if err := services.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(filepath.Join(volumes, "shared", "it's")); err != nil || string(data) != "from the folder\n" {
		t.Errorf("the volume has %q, %v", data, err)
	}
	for _, kind := range []string{"ps -a", "network ls", "volume ls"} {
		left, err := e.run(t.Context(), append(strings.Fields(kind), "-q", "--filter", "label="+labelRollout+"="+rollout)...)
		if err != nil || left != "" {
			t.Errorf("%s: %q is left, %v", kind, left, err)
		}
	}
}

// What one rollout of a process has is left alone when the services of another end.
func TestTheServicesOfOthersAreLeft(t *testing.T) {
	t.Parallel()
	e := podman(t)
	var both []*Services
	for _, name := range []string{"one", "other"} {
		compose, err := composeOf(t, "services:\n  main: {build: ., volumes: [\"shared:/shared\"]}\nvolumes: {shared: {}}\n")
		if err != nil {
			t.Fatal(err)
		}
		services, err := e.NewServices(ServicesSpec{Compose: compose, Rollout: rolloutOf(t) + name, Volumes: t.TempDir()})
		testenv.Need(t, testenv.Podman, err)
		if err := services.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		both = append(both, services)
	}
	for i, services := range both {
		if err := services.Close(t.Context()); err != nil {
			t.Error(err)
		}
		for j, other := range both {
			if _, err := e.run(t.Context(), "volume", "inspect", other.resource("shared")); (err == nil) != (j > i) {
				t.Errorf("after the end of %d, the volume of %d: %v", i, j, err)
			}
		}
	}
}

// A volume without a name is as durable as one with: that of an image as a database has it, and one
// that the file gives to a service. It begins with what the image has there, with its owner.
func TestVolumesWithoutNamesAreKept(t *testing.T) {
	t.Parallel()
	e := podman(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"db/seed": "of the image\n", "folder/x": "of the folder\n",
		"db/Dockerfile": "FROM " + baseImage + "\nCOPY --chown=999:999 seed /data/seed\nRUN chown 999:999 /data && chmod 700 /data\nVOLUME /data /covered /tmpfs\nUSER 999\n",
		ComposeFile:     "services:\n  db:\n    build: ./db\n    command: sleep 1000\n    user: \"999\"\n    volumes: [/scratch, \"./folder:/covered\"]\n    tmpfs: /tmpfs\n",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	volumes := t.TempDir()
	for i, want := range []string{"of the image\n", "of the image\nadded\n"} {
		compose, err := ReadCompose(filepath.Join(dir, ComposeFile), func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatal(err)
		}
		services, err := e.NewServices(ServicesSpec{Compose: compose, Rollout: rolloutOf(t), Internal: true, Volumes: volumes})
		testenv.Need(t, testenv.Podman, err)
		t.Cleanup(func() {
			if err := services.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
		if err := services.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		db, err := services.container(t.Context(), service{name: "db"})
		if err != nil {
			t.Fatal(err)
		}
		out, err := e.run(t.Context(), "exec", db, "sh", "-c", `cat /data/seed; stat -c "%u:%g %a" /data; ls /scratch; cat /covered/x; echo added >>/data/seed`)
		if i == 0 {
			want += "999:999 700\nof the folder"
			_, failed := e.run(t.Context(), "exec", "-u", "0", db, "touch", "/scratch/kept")
			err = errors.Join(err, failed)
		} else {
			want += "999:999 700\nkept\nof the folder"
		}
		if err != nil || out != want {
			t.Errorf("%d: got %q, %v, want %q", i, out, err, want)
		}
		if err := services.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestAServiceThatIsNotHealthy(t *testing.T) {
	t.Parallel()
	e := podman(t)
	for name, c := range map[string]struct{ service, want string }{
		"sick": {`command: sleep 1000
    healthcheck: {test: "echo it is broken >&2; false", interval: 100ms, retries: 2}`, `service "db" of docker-compose.yaml: it is not healthy after 2 attempts, the last time: podman exec: it is broken`},
		"dead":          {`command: sh -c "echo no data; exit 3"`, `service "db" of docker-compose.yaml: it `},
		"without image": {`image: localhost/evalrun-none:1`, "was not started: its image"},
	} {
		image := "image: " + baseImage + "\n    "
		if strings.HasPrefix(c.service, "image") {
			image = ""
		}
		compose, err := composeOf(t, "services:\n  db:\n    "+image+c.service+"\n")
		if err != nil {
			t.Fatal(err)
		}
		services, err := e.NewServices(ServicesSpec{Compose: compose, Rollout: rolloutOf(t) + name, Internal: true, Volumes: t.TempDir()})
		testenv.Need(t, testenv.Podman, err)
		if err := services.Up(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
		if err := services.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
