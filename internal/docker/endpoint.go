package docker

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// Endpoint says where a daemon is and how it is reached.
type Endpoint struct {
	// Host is as in DOCKER_HOST: unix:///PATH, tcp://HOST:PORT or ssh://[USER@]HOST[:PORT].
	Host string `json:"host"`
	// Certificates is the folder with ca.pem, cert.pem and key.pem of a daemon behind TLS; empty for one
	// that is not.
	Certificates string `json:"certificates,omitempty"`
	// SkipVerify accepts whatever certificate the daemon has.
	SkipVerify bool `json:"skipVerify,omitempty"`
	// API is the version of the API that a client has agreed on, so that the next one need not ask.
	API string `json:"api,omitempty"`
	// Podman says that the daemon is podman.
	Podman bool `json:"podman,omitempty"`
}

// Environment finds the daemon that the environment names, as the docker command does: DOCKER_HOST comes
// first, then the context of DOCKER_CONTEXT, then the one that "docker context use" has chosen.
func Environment() (Endpoint, error) {
	config := os.Getenv("DOCKER_CONFIG")
	if config == "" {
		home, _ := os.UserHomeDir() // without a home there are no contexts
		config = filepath.Join(home, ".docker")
	}
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		e := Endpoint{Host: host}
		path := os.Getenv("DOCKER_CERT_PATH")
		if verify := os.Getenv("DOCKER_TLS_VERIFY") != ""; verify || path != "" {
			var err error
			if e.Certificates, err = filepath.Abs(cmp.Or(path, config)); err != nil {
				return e, err
			}
			e.SkipVerify = !verify
		}
		return e, nil
	}
	name := os.Getenv("DOCKER_CONTEXT")
	if name == "" {
		text, err := os.ReadFile(filepath.Join(config, "config.json"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Endpoint{}, err
		}
		var chosen struct {
			CurrentContext string `json:"currentContext"`
		}
		if err == nil {
			if err := json.Unmarshal(text, &chosen); err != nil {
				return Endpoint{}, fmt.Errorf("%s: %w", filepath.Join(config, "config.json"), err)
			}
		}
		name = chosen.CurrentContext
	}
	if name == "" || name == "default" {
		return Endpoint{Host: DefaultHost}, nil
	}
	return ofContext(config, name)
}

// ofContext reads a context of the docker command, of which each is in folders named by a sum of its name.
func ofContext(config, name string) (e Endpoint, err error) {
	sum := sha256.Sum256([]byte(name))
	id := hex.EncodeToString(sum[:])
	file := filepath.Join(config, "contexts", "meta", id, "meta.json")
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return e, fmt.Errorf("there is no Docker context %q in %s: choose one of docker context ls, or name the daemon with DOCKER_HOST",
			name, filepath.Join(config, "contexts"))
	}
	var is struct {
		Endpoints struct {
			Docker struct {
				Host          string
				SkipTLSVerify bool
			} `json:"docker"`
		}
	}
	if err == nil {
		err = json.Unmarshal(text, &is)
	}
	if err == nil && is.Endpoints.Docker.Host == "" {
		err = errors.New("it has no endpoint of a Docker daemon")
	}
	if err != nil {
		return e, fmt.Errorf("the Docker context %q (%s): %w", name, file, err)
	}
	e.Host = is.Endpoints.Docker.Host
	certificates := filepath.Join(config, "contexts", "tls", id, "docker")
	if _, err := os.Stat(certificates); err == nil {
		e.Certificates, e.SkipVerify = certificates, is.Endpoints.Docker.SkipTLSVerify
	}
	return e, nil
}

// dialer makes the function that connects with the endpoint.
func (e Endpoint) dialer() (dial, error) {
	scheme, rest, _ := strings.Cut(e.Host, "://")
	switch {
	case scheme == "unix" && strings.HasPrefix(rest, "/"):
		return plain("unix", rest), nil
	case scheme == "tcp" && rest != "" && !strings.ContainsAny(rest, "/@"):
		if _, _, err := net.SplitHostPort(rest); err != nil {
			return nil, fmt.Errorf("the Docker daemon's address is %q: expected tcp://HOST:PORT: %w", e.Host, err)
		}
		if e.Certificates != "" {
			return e.secured(rest)
		}
		return plain("tcp", rest), nil
	case scheme == "ssh":
		u, err := url.Parse(e.Host)
		switch {
		case err != nil: // its text has the address
		case hasPassword(u):
			return nil, errors.New("the Docker daemon's address has a password, which every user of this machine could read: ssh:// takes a key")
		case u.Hostname() != "" && !strings.HasPrefix(u.Hostname(), "-") && strings.Trim(u.Path, "/") == "" && u.RawQuery == "" && u.Fragment == "":
			return overSSH(u), nil
		}
		return nil, fmt.Errorf("the Docker daemon's address is %q: expected ssh://[USER@]HOST[:PORT]", withoutPassword(e.Host))
	}
	return nil, fmt.Errorf("the Docker daemon's address (DOCKER_HOST, or that of a context) is %q: expected unix:///PATH, tcp://HOST:PORT or ssh://[USER@]HOST",
		withoutPassword(e.Host))
}

func hasPassword(u *url.URL) bool {
	_, has := u.User.Password()
	return has
}

// withoutPassword is an address for people, who get no password to see.
func withoutPassword(host string) string {
	scheme, rest, _ := strings.Cut(host, "://")
	at := strings.LastIndexByte(rest, '@')
	if user, _, has := strings.Cut(rest[:max(at, 0)], ":"); has {
		return scheme + "://" + user + ":..." + rest[at:]
	}
	return host
}
