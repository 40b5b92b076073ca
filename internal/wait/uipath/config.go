package uipath

import (
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/httpcall"
	"github.com/evalrun/evalrun/internal/wait/template"
)

// Kind is the source of jobs of UiPath's Orchestrator.
var Kind = wait.Kind{
	Name: wait.SourceUiPath, Polled: true, Parse: parse, Settings: func() wait.Settings { return new(Config) },
	Serves: func(_ wait.JobConfig, spec wait.Spec) bool { return spec.ItemKey != "" || spec.Process != "" },
	New: func(c wait.JobConfig, e wait.Env) (wait.Source, error) {
		config := c.Settings.(*Config)
		return New(httpcall.Caller{Env: e, Polling: config.Polling}, *config), nil
	},
}

// Config is a job of UiPath's Orchestrator. All of its fields may contain ${VAR}.
type Config struct {
	// URL is where Orchestrator's API is: what stands before /odata.
	URL string `json:"url"`
	// Token is sent as Authorization: Bearer.
	Token string `json:"token"`
	// FolderKey or FolderPath is the folder in which jobs are started, whatever the agent says. A
	// job whose folder the agent has not said is looked for there, too. Both are empty where only
	// the agent knows.
	FolderKey  string `json:"folderKey,omitempty"`
	FolderPath string `json:"folderPath,omitempty"`
	httpcall.Polling
}

// AddVariables implements wait.Settings.
func (c *Config) AddVariables(into map[string]bool) {
	for _, s := range []string{c.URL, c.Token, c.FolderKey, c.FolderPath} {
		template.AddVariables(s, into)
	}
}

func parse(r *input.Reader, f *input.Fields) wait.Settings {
	p := httpcall.Reader{R: r}
	c := &Config{
		URL: f.RequiredString("url"), Token: f.RequiredString("token"),
		FolderKey: f.String("folderKey", ""), FolderPath: f.String("folderPath", ""),
		Polling: p.Polling(f, httpcall.DefaultInterval, httpcall.DefaultMaxInterval),
	}
	p.Base(f, c.URL, "/odata")
	p.Secret(f, "token", "${UIPATH_ACCESS_TOKEN}")
	p.Line(f.Get("folderKey"))
	p.Line(f.Get("folderPath"))
	if n := f.Get("folderPath"); n != nil && c.FolderKey != "" && c.FolderPath != "" {
		r.Errorf(n, "expected either folderKey or folderPath, got both")
	}
	return c
}
