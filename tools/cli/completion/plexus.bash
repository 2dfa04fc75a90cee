# SPDX-License-Identifier: Apache-2.0
# Completion of `plexus` for bash; zsh takes it after `autoload -U bashcompinit; bashcompinit`. The
# program knows its words; where it names none, files are completed.
_plexus() {
  local IFS=$'\n'
  COMPREPLY=($("$1" complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _plexus plexus
