package taskcache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/tasks"
)

// registryTime is how long a registry may take to answer.
const registryTime = 2 * time.Minute

// Registry returns the data sets of a registry at an address. It is asked each time, because a registry
// grows. What it has said is kept, and taken where it does not answer, which is said.
func (c *Cache) Registry(ctx context.Context, address string) ([]tasks.RegistryDataset, input.Problems, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return nil, nil, errors.New("no address of a registry: expected https://HOST/registry.json")
	case u.User != nil || u.RawQuery != "":
		return nil, nil, errors.New("an address with a name, a password or a query in it would be written into results; " +
			"download the registry, and name the file")
	}
	kept := filepath.Join(c.dir, "registries", key(address)+".json")
	data, failed := ask(ctx, address)
	if failed == nil {
		all, problems := tasks.ParseRegistry(address, data)
		if failed = problems.Err(false); failed == nil {
			return all, problems, keepRegistry(kept, data)
		}
	}
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	info, err := os.Stat(kept)
	if err == nil {
		data, err = input.ReadFile(kept, input.MaxFile)
	}
	all, problems := tasks.ParseRegistry(address, data)
	if err != nil || problems.Err(false) != nil {
		return nil, nil, failed
	}
	c.say(fmt.Sprintf("going on with the registry as it was on %s: %v", info.ModTime().Format(time.DateOnly), failed))
	return all, problems, nil
}

// ask downloads a registry.
func ask(ctx context.Context, address string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, registryTime, fmt.Errorf("no answer within %v", registryTime))
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		if of := new(url.Error); errors.As(err, &of) {
			err = of.Err
		}
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	defer func() { _ = answer.Body.Close() }() // only read
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", address, answer.Status)
	}
	data, err := io.ReadAll(io.LimitReader(answer.Body, input.MaxFile+1))
	if err == nil && len(data) > input.MaxFile {
		err = fmt.Errorf("more than %d MB", input.MaxFile>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	return data, nil
}

// keepRegistry keeps what a registry has said.
func keepRegistry(file string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return durable.WriteFile(file, 0o600, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}
