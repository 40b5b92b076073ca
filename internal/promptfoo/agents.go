package promptfoo

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
)

// contentPath is where a model that is an agent has its text.
const contentPath = "content"

// prompt is one prompt, as a text or as messages.
type prompt struct {
	label, text, system string
	messages            []map[string]any
}

// agents makes an agent of each pair of a provider and a prompt.
func (im *importer) agents(root, prompts, providers *input.Node) {
	if prompts == nil || providers == nil {
		im.Errorf(root, "expected prompts and providers; --agent NAME evaluates an agent of yours in their place")
		return
	}
	list := im.prompts(prompts)
	items := []*input.Node{providers}
	if providers.Kind == input.Array {
		items = providers.Items
	}
	taken := map[string]bool{}
	for _, n := range items {
		agent, ok := im.provider(n)
		if !ok {
			continue
		}
		for i, p := range list {
			one := map[string]any{}
			for key, value := range agent {
				one[key] = value
			}
			name := fmt.Sprint(agent["name"])
			if len(list) > 1 {
				name += " " + p.label
				if p.label == "" {
					name = fmt.Sprintf("%v prompt %d", agent["name"], i+1)
				}
			}
			for base, k := name, 2; taken[name]; k++ {
				name = fmt.Sprintf("%s (%d)", base, k)
			}
			taken[name] = true
			one["name"] = name
			if p.messages != nil {
				one["messages"] = p.messages
			} else {
				one["prompt"] = p.text
			}
			if p.system != "" {
				one["system"] = p.system
			}
			im.out.Agents = append(im.out.Agents, one)
		}
	}
	if len(im.out.Agents) == 0 && len(im.Problems) == 0 {
		im.Problems = append(im.Problems, im.missing...)
		im.Errorf(providers, "no provider with a prompt has a counterpart; --agent NAME evaluates an agent of yours")
	}
}

func (im *importer) prompts(n *input.Node) (out []prompt) {
	items := []*input.Node{n}
	if n.Kind == input.Array {
		items = n.Items
	}
	for _, item := range items {
		label := ""
		if item.Kind == input.Object {
			f := im.Object(item)
			label = f.String("label", "")
			raw := f.Get("raw")
			if id := f.Get("id"); raw == nil {
				raw = id
			}
			im.rest(f)
			if raw == nil || raw.Kind != input.String {
				im.miss(item, "a prompt without raw or id has no counterpart")
				continue
			}
			item = raw
		}
		if item.Kind != input.String {
			im.Errorf(item, "expected a prompt, got %s", item.Kind)
			continue
		}
		for _, text := range im.promptTexts(item) {
			if p, ok := im.prompt(item, text); ok {
				p.label = label
				out = append(out, p)
			}
		}
	}
	return out
}

// promptTexts returns the prompts that a text, or the file that it names, has.
func (im *importer) promptTexts(n *input.Node) []string {
	name, isFile := strings.CutPrefix(n.Text, "file://")
	looksLikeFile := !strings.ContainsAny(n.Text, "\n{ ") && strings.Contains(" .txt .md .json .js .py .yaml .csv ",
		" "+filepath.Ext(n.Text)+" ") && filepath.Ext(n.Text) != ""
	if !isFile && !looksLikeFile {
		return []string{n.Text}
	}
	if !isFile {
		name = n.Text
	}
	if ext := filepath.Ext(name); ext != ".txt" && ext != ".md" && ext != ".json" || strings.ContainsAny(name, "*?[") {
		im.miss(n, "prompts of %s have no counterpart; a .txt, .md or .json file has", name)
		return nil
	}
	data, err := im.read(name)
	if err != nil {
		im.Errorf(n, "%v", err)
		return nil
	}
	text := strings.TrimRight(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n")
	if filepath.Ext(name) != ".txt" {
		return []string{text}
	}
	var out []string
	for _, one := range strings.Split("\n"+text+"\n", "\n---\n") {
		if one = strings.Trim(one, "\n"); one != "" {
			out = append(out, one)
		}
	}
	return out
}

// prompt reads a prompt, which may be a list of messages in JSON.
func (im *importer) prompt(n *input.Node, text string) (prompt, bool) {
	if wrong := unlike(text); wrong != "" {
		im.miss(n, "%s in a prompt has no counterpart; evalrun fills in {{name}} and {{name.member}}", wrong)
		return prompt{}, false
	}
	if strings.HasPrefix(text, "file:") { // in an agent it would name a file
		im.miss(n, "a prompt that begins with file: has no counterpart")
		return prompt{}, false
	}
	root, err := input.ParseJSON(n.File, []byte(text))
	if err != nil || root.Kind != input.Array {
		return prompt{text: text}, true
	}
	p := prompt{}
	for _, item := range root.Items {
		role, content := item.Member("role"), item.Member("content")
		switch {
		case role == nil || content == nil || content.Kind != input.String:
			im.miss(n, "messages of other things than texts have no counterpart")
			return prompt{}, false
		case strings.HasPrefix(content.Text, "file:"):
			im.miss(n, "a message that begins with file: has no counterpart")
			return prompt{}, false
		case role.Text == "system" || role.Text == "developer":
			p.system = strings.TrimPrefix(p.system+"\n\n"+content.Text, "\n\n")
		case role.Text == "user" || role.Text == "assistant":
			p.messages = append(p.messages, map[string]any{"role": role.Text, "content": content.Text})
		default:
			im.miss(n, "a message of the role %q has no counterpart", role.Text)
			return prompt{}, false
		}
	}
	if len(p.messages) == 0 {
		im.miss(n, "a prompt without a message of the user has no counterpart")
		return prompt{}, false
	}
	return p, true
}

var (
	// plainPlace matches a place that evalrun fills in, too.
	plainPlace = regexp.MustCompile(`\{\{\s*([A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*)\s*\}\}`)
	// anyPlace matches everything that Nunjucks acts upon.
	anyPlace = regexp.MustCompile(`(?s)\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}`)
)

// unlike returns what a template has that evalrun does not fill in.
func unlike(template string) string {
	for _, place := range anyPlace.FindAllString(template, -1) {
		if m := plainPlace.FindStringSubmatch(place); m == nil || m[0] != place || strings.HasPrefix(m[1], "env.") {
			return place
		}
	}
	return ""
}

// providerNames are the beginnings of promptfoo's names of models, the longest first, and of ours.
var providerNames = [][2]string{
	{"openai:responses:", "openai-responses/"}, {"openai:chat:", "openai/"}, {"openai:", "openai/"},
	{"anthropic:messages:", "anthropic/"}, {"anthropic:", "anthropic/"},
	{"google:", "gemini/"}, {"openrouter:", "openrouter/"}, {"ollama:chat:", "ollama/"},
}

// model returns our name of a model.
func model(id string) (string, bool) {
	for _, pair := range providerNames {
		if rest, ok := strings.CutPrefix(id, pair[0]); ok && rest != "" && !strings.Contains(rest, ":") ||
			ok && pair[1] == "ollama/" && rest != "" {
			return pair[1] + rest, true
		}
	}
	return "", false
}

// provider makes the part of an agent that is its model.
func (im *importer) provider(n *input.Node) (map[string]any, bool) {
	id, label := n.Text, ""
	var config *input.Node
	if n.Kind == input.Object {
		f := im.Object(n)
		idNode := f.Get("id")
		if idNode == nil && len(n.Members) == 1 { // {"openai:gpt-5-mini": {"config": …}}
			id = n.Members[0].Key
			f = im.Object(n.Members[0].Value)
		} else if idNode != nil {
			id = idNode.Text
		}
		label = f.String("label", "")
		config = f.Optional("config", input.Object)
		im.rest(f)
	}
	name, ok := model(id)
	if !ok {
		im.miss(n, "the provider %q has no counterpart", id)
		return nil, false
	}
	agent := map[string]any{"type": "model", "model": name, "name": name}
	if label != "" {
		agent["name"] = label
	}
	if config == nil {
		return agent, true
	}
	f := im.Object(config)
	for theirs, ours := range map[string]string{"temperature": "temperature", "seed": "seed"} {
		if v := f.Get(theirs); v != nil && v.Kind == input.Number {
			agent[ours] = v.JSON()
		}
	}
	for _, theirs := range []string{"max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens"} {
		if v := f.Get(theirs); v != nil && v.Kind == input.Number {
			agent["maxTokens"] = v.JSON()
		}
	}
	if v := f.Get("reasoning_effort"); v != nil && v.Kind == input.String {
		agent["reasoning"] = v.Text
	}
	im.rest(f)
	return agent, true
}
