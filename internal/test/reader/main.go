// Command reader prints the evaluations that failed in a results document. It is an example of
// somebody else's program that reads results: of this module it imports only the package schemas.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/evalrun/evalrun/schemas"
)

func main() {
	if err := printFailed(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "reader:", err)
		os.Exit(1)
	}
}

func printFailed(in io.Reader, out io.Writer) error {
	results, err := schemas.Decode(in)
	if err != nil {
		return err
	}
	for _, r := range results.Failed() {
		switch {
		case r.Error != nil:
			_, err = fmt.Fprintf(out, "%s: %s: %s\n", r.EvaluationID, r.Error.Category, r.Error.Message)
		default:
			_, err = fmt.Fprintf(out, "%s: score %v\n", r.EvaluationID, *r.Score)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
