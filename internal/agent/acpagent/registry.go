package acpagent

import (
	"encoding/json"

	"github.com/evalrun/evalrun/internal/agent"
)

// registry holds the entries that eval sets may call by name. The settings follow from
// measurements: docs/acp.md has a line for each.
var registry = map[string]func() agent.Entry{
	"claude":     func() agent.Entry { return claude("claude-agent-acp") },
	"zed-claude": func() agent.Entry { return claude("claude-code-acp") },
	"codex":      func() agent.Entry { return codex("codex-acp") },
	"zed-codex":  func() agent.Entry { return codex("codex-acp") },
	"gemini": func() agent.Entry {
		return registered([]string{"gemini", "--acp", "-m", "gemini-2.5-pro"}, "mcp_{server}_{tool}",
			// A session that is loaded within a minute of its start is lost, and each load repeats
			// old results.
			[]ResumeBy{ByReplay},
			&agent.Model{API: "gemini", URL: "${GOOGLE_GEMINI_BASE_URL:-https://generativelanguage.googleapis.com}",
				Key: "${GEMINI_API_KEY:-}"},
			map[string]string{
				"GEMINI_API_KEY": "{modelKey}", "GOOGLE_GEMINI_BASE_URL": "{modelURL}", "GEMINI_CLI_HOME": "{home}",
				"GEMINI_CLI_NO_RELAUNCH": "true",
			},
			map[string]string{".gemini/settings.json": geminiSettings})
	},
	"opencode": func() agent.Entry {
		return registered([]string{"opencode", "acp"}, "{server}_{tool}", []ResumeBy{ByResume, ByLoad, ByReplay}, openAI(),
			map[string]string{
				"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
				"OPENCODE_DISABLE_SHARE":  "1",
				"OPENCODE_CONFIG_CONTENT": opencodeConfig,
			}, nil)
	},
	"qwen": func() agent.Entry {
		return registered([]string{"qwen", "--acp", "--approval-mode", "yolo"}, "mcp__{server}__{tool}",
			[]ResumeBy{ByResume, ByLoad, ByReplay},
			&agent.Model{API: "openai", URL: "${OPENAI_BASE_URL:-https://api.openai.com/v1}", Key: "${OPENAI_API_KEY:-}"},
			map[string]string{
				"OPENAI_API_KEY": "{modelKey}", "OPENAI_BASE_URL": "{modelURL}", "OPENAI_MODEL": "{model}",
				"QWEN_CODE_NO_RELAUNCH":         "true",
				"QWEN_CODE_LEGACY_MCP_BLOCKING": "1", // otherwise the first request to the model has no MCP tools
			},
			map[string]string{
				".qwen/settings.json": `{"security":{"auth":{"selectedType":"openai"}},"tools":{"toolSearch":{"enabled":false}}}`})
	},
	"kimi": func() agent.Entry {
		return registered([]string{"kimi", "acp"}, "mcp__{server}__{tool}", []ResumeBy{ByResume, ByLoad, ByReplay}, openAI(),
			map[string]string{"KIMI_CODE_NO_AUTO_UPDATE": "1", "KIMI_DISABLE_TELEMETRY": "1"},
			map[string]string{".kimi-code/config.toml": kimiConfig})
	},
	"copilot": func() agent.Entry {
		return registered([]string{"copilot", "--acp"}, "{server}-{tool}", []ResumeBy{ByLoad, ByReplay}, openAI(),
			map[string]string{
				"COPILOT_PROVIDER_TYPE": "openai", "COPILOT_PROVIDER_BASE_URL": "{modelURL}",
				"COPILOT_PROVIDER_API_KEY": "{modelKey}", "COPILOT_MODEL": "{model}",
				"COPILOT_OFFLINE":     "true", // otherwise it asks GitHub for an account, whatever the provider is
				"COPILOT_AUTO_UPDATE": "false",
			}, nil)
	},
	"vibe": func() agent.Entry {
		// Otherwise its model has to find MCP tools by a search, and to call them in TypeScript.
		return registered([]string{"vibe-acp", "--legacy-harness"},
			"{server}_{tool}", []ResumeBy{ByReplay}, // it does not ask its servers for their tools when it loads a session
			openAI(), map[string]string{"OPENAI_API_KEY": "{modelKey}", "VIBE_HOME": "{home}/.vibe"},
			map[string]string{".vibe/config.toml": vibeConfig})
	},
	"goose": func() agent.Entry {
		return registered([]string{"goose", "acp"}, "{server}__{tool}", []ResumeBy{ByResume, ByLoad, ByReplay},
			&agent.Model{API: "openai", URL: "${OPENAI_BASE_URL:-https://api.openai.com}", Key: "${OPENAI_API_KEY:-}",
				Name: "gpt-5"},
			map[string]string{"GOOSE_PROVIDER": "openai", "OPENAI_HOST": "{modelURL}", "OPENAI_API_KEY": "{modelKey}",
				"GOOSE_MODEL": "{model}", "GOOSE_MODE": "auto"}, nil)
	},
}

// claude makes the entry of an agent that runs Claude Code's own engine behind ACP.
func claude(program string) agent.Entry {
	return registered([]string{program}, "mcp__{server}__{tool}", []ResumeBy{ByResume, ByLoad, ByReplay},
		&agent.Model{API: "anthropic", URL: "${ANTHROPIC_BASE_URL:-https://api.anthropic.com}",
			Key: "${ANTHROPIC_API_KEY:-}"},
		map[string]string{
			"ANTHROPIC_BASE_URL": "{modelURL}", "ANTHROPIC_API_KEY": "{modelKey}", "ANTHROPIC_MODEL": "{model}",
			"CLAUDE_CONFIG_DIR":                        "{home}/.claude",
			"ENABLE_TOOL_SEARCH":                       "false", // otherwise MCP tools are deferred behind a search tool
			"CLAUDE_CODE_MAX_RETRIES":                  "2",     // by default a refused key costs a minute
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1",
			"DISABLE_ERROR_REPORTING": "1",
		}, nil)
}

// codex makes the entry of an agent that runs Codex's own engine behind ACP.
func codex(program string) agent.Entry {
	return registered([]string{program}, "mcp__{server}__{tool}", []ResumeBy{ByResume, ByLoad, ByReplay}, openAI(),
		map[string]string{
			"OPENAI_API_KEY": "{modelKey}", "CODEX_HOME": "{home}/.codex", "NO_BROWSER": "1",
			"INITIAL_AGENT_MODE": "agent-full-access", // otherwise the model reviews tools without readOnlyHint first
		},
		map[string]string{".codex/config.toml": codexConfig})
}

// openAI returns an endpoint of OpenAI's API, for agents that take any.
func openAI() *agent.Model {
	return &agent.Model{API: "openai", URL: "${OPENAI_BASE_URL:-https://api.openai.com/v1}", Key: "${OPENAI_API_KEY:-}",
		Name: "gpt-5"}
}

func registered(command []string, toolName string, by []ResumeBy, model *agent.Model,
	env, files map[string]string) agent.Entry {
	return agent.Entry{
		Command: command, Env: env, Model: model, ResumeWhen: agent.ResumeAll, AcceptsFaults: true,
		Settings: &Settings{Files: files, Permissions: PolicyAllow, Elicitation: PolicyDeny, ResumeBy: by,
			ToolName: toolName},
	}
}

const codexConfig = `model = "{model}"
model_provider = "evalrun"
check_for_update_on_startup = false

[model_providers.evalrun]
name = "evalrun"
base_url = "{modelURL}"
env_key = "OPENAI_API_KEY"
wire_api = "responses"

[analytics]
enabled = false

[features]
plugins = false
apps = false
remote_plugin = false
`

const kimiConfig = `default_model = "evalrun"

[models.evalrun]
provider = "evalrun"
model = "{model}"
max_context_size = 200000

[providers.evalrun]
type = "openai"
base_url = "{modelURL}"
api_key = "{modelKey}"
`

const vibeConfig = `active_model = "evalrun"
enable_telemetry = false
enable_update_checks = false
enable_auto_update = false

[[providers]]
name = "evalrun"
api_base = "{modelURL}"
api_key_env_var = "OPENAI_API_KEY"
api_style = "openai"
backend = "generic"

[[models]]
name = "{model}"
provider = "evalrun"
alias = "evalrun"
`

const geminiSettings = `{"security":{"auth":{"selectedType":"gemini-api-key"},"folderTrust":{"enabled":false}},` +
	`"privacy":{"usageStatisticsEnabled":false},"telemetry":{"enabled":false},` +
	`"general":{"sessionRetention":{"enabled":false},"enableAutoUpdate":false,"disableAutoUpdate":true,"disableUpdateNag":true,"checkpointing":{"enabled":false}}}`

// opencodeConfig makes the configured endpoint a provider. It sets mcp_timeout so that the gateway
// ends calls; without it opencode gives them up after a minute.
var opencodeConfig = compact(`{"$schema":"https://opencode.ai/config.json","autoupdate":false,"share":"disabled",
	"model":"evalrun/{model}","small_model":"evalrun/{model}","enabled_providers":["evalrun"],
	"experimental":{"mcp_timeout":900000},
	"provider":{"evalrun":{"npm":"@ai-sdk/openai-compatible","name":"evalrun","options":{"baseURL":"{modelURL}","apiKey":"{modelKey}"},
		"models":{"{model}":{"name":"{model}","limit":{"context":200000,"output":8192}}}}}}`)

func compact(text string) string {
	var v json.RawMessage
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		panic(err) // a constant of this file
	}
	out, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(out)
}

// installs says how to install the programs of the registry's agents, at the versions that were
// tested (docs/acp.md), and what else they need.
var installs = map[string]string{
	"claude-agent-acp": npm("@agentclientprotocol/claude-agent-acp@0.100.0", "22"),
	"claude-code-acp":  npm("@zed-industries/claude-code-acp@0.16.2", "20"),
	"codex-acp": npm("@agentclientprotocol/codex-acp@2.6.0", "20") + ", and for zed-codex with: " +
		npm("@zed-industries/codex-acp@0.16.0", "20"),
	"copilot":  npm("@github/copilot@1.0.102", "22"),
	"gemini":   npm("@google/gemini-cli@0.61.0", "20"),
	"kimi":     npm("@moonshot-ai/kimi-code@2.1.0", "22.19"),
	"opencode": npm("opencode-ai@1.18.33", "20"),
	"qwen":     npm("@qwen-code/qwen-code@0.24.4", "22"),
	"vibe-acp": "pip install mistral-vibe==2.26.1 (the version that was tested; it needs Python 3.12 or newer)",
}

func npm(name, node string) string {
	return "npm install -g " + name + " (the version that was tested; it needs Node.js " + node + " or newer)"
}
