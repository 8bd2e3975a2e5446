package here

import "strings"

// foldsToGit says that some file system takes a name for .git: one without
// upper and lower case, one that passes over characters that nobody sees, one
// that has short names, one that passes over what ends a name.
func foldsToGit(name string) bool {
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 0x200b && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2060 && r <= 0x206f, r == 0xfeff:
			return -1
		}
		return r
	}, name)
	name = strings.TrimRight(name, ". ")
	return strings.EqualFold(name, ".git") || strings.EqualFold(name, "git~1")
}

// selfStarters are files and folders that tools of this host run, or take
// orders from, as soon as somebody opens or enters the tree.
var selfStarters = map[string]string{
	".envrc": "direnv runs it", ".vscode": "the editor may run what it names", ".idea": "the editor may run what it names", ".zed": "the editor may run what it names",
	".devcontainer": "the editor may run what it names", ".husky": "git may run it", ".githooks": "git may run it", ".hooks": "git may run it",
	".pre-commit-config.yaml": "git may run what it names", "lefthook.yml": "git may run what it names", ".gitmodules": "git reads addresses from it",
	".gitattributes": "git may run filters for it", ".mcp.json": "agents run what it names", ".claude": "agents run what it names", ".cursor": "agents run what it names",
	".github": "it may run where you push to", ".gitlab-ci.yml": "it may run where you push to", ".npmrc": "npm obeys it", ".yarnrc": "yarn obeys it",
	".yarnrc.yml": "yarn obeys it", ".yarn": "yarn runs it", ".cargo": "cargo runs what it names", ".mise.toml": "mise runs what it names", "mise.toml": "mise runs what it names",
	".tool-versions": "it chooses programs", ".bazelrc": "bazel obeys it", ".mvn": "maven obeys it", "sitecustomize.py": "every python here runs it",
	"usercustomize.py": "every python here runs it", ".gdbinit": "gdb runs it", ".exrc": "vi runs it", ".nvimrc": "vi runs it", ".nvim.lua": "vi runs it",
	".dir-locals.el": "emacs runs it", "CLAUDE.md": "agents obey it", "AGENTS.md": "agents obey it", ".cursorrules": "agents obey it",
}

// startsItself says why a path may act on this host without being asked to, ""
// if it is not known to. A Makefile acts when somebody runs make.
func startsItself(p string) string {
	for part := range strings.SplitSeq(p, "/") {
		if why := selfStarters[part]; why != "" {
			return why
		}
	}
	if strings.HasSuffix(p, ".pth") {
		return "every python there runs it"
	}
	return ""
}
