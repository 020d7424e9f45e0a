# Completes `invoke` and ./lab of this checkout in bash and zsh: tasks, options and the values that are known.
# In ~/.bashrc, or in ~/.zshrc behind compinit: source /path/to/this/completion.sh

_decode_ab_root=$(cd "$(dirname "${BASH_SOURCE:-$0}")" >/dev/null && pwd -P)

# LINE, the command line up to the cursor: what its last word may become, a line each.
_decode_ab_words() {
    local command=${1%%[[:space:]]*} here=
    case $(pwd -P)/ in "$_decode_ab_root"/*) here=yes ;; esac
    if [ "$command" -ef "$_decode_ab_root/lab" ] || { [ "$here" ] && [ "${command##*/}" != lab ]; }; then
        (cd "$_decode_ab_root" && .venv/bin/python -m app.console.completion "$1") 2>/dev/null
    elif [ "${command##*/}" != lab ]; then
        # Another project's tasks: as Invoke's own script has it.
        "$command" --complete -- "$1" 2>/dev/null
    fi
}

if [ -n "${ZSH_VERSION-}" ]; then
    _decode_ab() {
        local -a found=(${(f)"$(_decode_ab_words "${(j: :)words[1,CURRENT-1]} $PREFIX")"})
        compadd -a found || _files
    }
    compdef _decode_ab invoke inv "$_decode_ab_root/lab" "$_decode_ab_root/./lab"
else
    _decode_ab() {
        local line=${COMP_LINE:0:COMP_POINT} one
        local word=${line##*[[:space:]]}
        COMPREPLY=()
        while IFS= read -r one; do
            # Readline begins a new word behind = and asks for that part alone.
            [[ $one == "$word"* ]] && COMPREPLY+=("${one#"${word%"$2"}"}")
        done < <(_decode_ab_words "$line")
    }
    complete -F _decode_ab -o default invoke inv ./lab "$_decode_ab_root/lab"
fi
