package sdks

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"google.golang.org/genai"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/modelagent"
)

const (
	imageURL = "https://example.com/photos/cat.jpg?size=1"
	pdfURL   = "https://example.com/rules.pdf"
)

var (
	png = append([]byte("\x89PNG\r\n\x1a\n"), "an image"...)
	pdf = []byte("%PDF-1.7\na page\n")
)

// sendsFiles has a model of ours asked with an image and a PDF of a folder, an image in a data: URL, and one
// that the provider fetches; and with a PDF that it fetches, unless the API takes none.
func sendsFiles(t *testing.T, api string) (body map[string]any) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_ = json.NewDecoder(r.Body).Decode(&body) // what is missing fails below
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "in"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"in/photo.png": png, "in/rules.pdf": pdf} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parts := []modelagent.Part{{File: "in/{{photo}}"}, {File: "in/rules.pdf"}, {File: "{{data}}"}, {File: imageURL}, {Text: "What is {{this}}?"}}
	if api != "chat" {
		parts = append(parts, modelagent.Part{File: pdfURL})
	}
	inputs, err := json.Marshal(map[string]string{"photo": "photo.png", "this": "that", "data": "data:image/webp;base64,UklGRg=="})
	if err != nil {
		t.Fatal(err)
	}
	e := agent.Entry{Name: "m", Type: modelagent.Name, Model: &agent.Model{API: api, URL: server.URL, Name: "m1"},
		Settings: &modelagent.Settings{Messages: []modelagent.Message{{Role: "user", Parts: parts}}}}
	a := modelagent.New(e, agent.Options{})
	got, err := a.Run(t.Context(), agent.Segment{RolloutID: "r", Number: 1, Attempt: 1, Input: inputs, Dir: t.TempDir(), BaseDir: dir})
	if err != nil || body == nil {
		t.Fatalf("%v, %v", err, got.Fault)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	return body
}

func inBase64(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

func TestFilesOfMessages(t *testing.T) {
	equal(t, sendsFiles(t, "messages"), anthropic.MessageNewParams{Model: "m1", MaxTokens: 8000, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(
		anthropic.NewImageBlockBase64("image/png", inBase64(png)),
		anthropic.NewDocumentBlock(anthropic.Base64PDFSourceParam{Data: inBase64(pdf)}),
		anthropic.NewImageBlockBase64("image/webp", "UklGRg=="),
		anthropic.NewImageBlock(anthropic.URLImageSourceParam{URL: imageURL}),
		anthropic.NewTextBlock("What is that?"),
		anthropic.NewDocumentBlock(anthropic.URLPDFSourceParam{URL: pdfURL}))}})
}

func TestFilesOfChat(t *testing.T) {
	image := func(url string) openai.ChatCompletionContentPartUnionParam {
		return openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: url})
	}
	equal(t, sendsFiles(t, "chat"), openai.ChatCompletionNewParams{Model: "m1", Messages: []openai.ChatCompletionMessageParamUnion{
		openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{
			image("data:image/png;base64," + inBase64(png)),
			openai.FileContentPart(openai.ChatCompletionContentPartFileFileParam{Filename: openai.String("rules.pdf"),
				FileData: openai.String("data:application/pdf;base64," + inBase64(pdf))}),
			image("data:image/webp;base64,UklGRg=="), image(imageURL), openai.TextContentPart("What is that?")})}})
}

func TestFilesOfResponses(t *testing.T) {
	image := func(url string) responses.ResponseInputContentUnionParam {
		return responses.ResponseInputContentUnionParam{OfInputImage: &responses.ResponseInputImageParam{
			Detail: responses.ResponseInputImageDetailAuto, ImageURL: param.NewOpt(url)}}
	}
	file := func(f responses.ResponseInputFileParam) responses.ResponseInputContentUnionParam {
		return responses.ResponseInputContentUnionParam{OfInputFile: &f}
	}
	params := responses.ResponseNewParams{Model: "m1", Store: openai.Bool(false),
		Include: []responses.ResponseIncludable{responses.ResponseIncludableReasoningEncryptedContent}}
	params.Input.OfInputItemList = responses.ResponseInputParam{responses.ResponseInputItemParamOfMessage(responses.ResponseInputMessageContentListParam{
		image("data:image/png;base64," + inBase64(png)),
		file(responses.ResponseInputFileParam{Filename: param.NewOpt("rules.pdf"), FileData: param.NewOpt("data:application/pdf;base64," + inBase64(pdf))}),
		image("data:image/webp;base64,UklGRg=="), image(imageURL), responses.ResponseInputContentParamOfInputText("What is that?"),
		file(responses.ResponseInputFileParam{FileURL: param.NewOpt(pdfURL)})}, responses.EasyInputMessageRoleUser)}
	equal(t, sendsFiles(t, "responses"), params)
}

func TestFilesOfGemini(t *testing.T) {
	webp, err := base64.StdEncoding.DecodeString("UklGRg==")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, sendsFiles(t, "gemini"), geminiSends(t, []*genai.Content{genai.NewContentFromParts([]*genai.Part{
		genai.NewPartFromBytes(png, "image/png"), genai.NewPartFromBytes(pdf, "application/pdf"), genai.NewPartFromBytes(webp, "image/webp"),
		genai.NewPartFromURI(imageURL, "image/jpeg"), genai.NewPartFromText("What is that?"), genai.NewPartFromURI(pdfURL, "application/pdf")},
		genai.RoleUser)}, nil))
}
