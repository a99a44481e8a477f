# Completes the commands of limiter, and what is there now: interfaces, limits, sources.
_limiter() {
    local IFS=$' \t\n' line=${COMP_LINE:0:COMP_POINT} words cut word values=()
    # Words end at spaces. In COMP_WORDS, an IPv6 address is split at its colons.
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    IFS=$'\n'
    COMPREPLY=($(_CLAP_IFS=$'\n' _CLAP_COMPLETE_INDEX=$((${#words[@]} - 1)) COMPLETE=bash \
        limiter -- "${words[@]}" 2>/dev/null))
    # Options are offered where there is no value, and once a dash is typed.
    for word in "${COMPREPLY[@]}"; do
        [[ $word == -* ]] || values+=("$word")
    done
    if [[ -z ${words[-1]} && ${#values[@]} -gt 0 ]]; then
        COMPREPLY=("${values[@]}")
    fi
    [[ ${COMPREPLY-} == *[=/] ]] && compopt -o nospace 2>/dev/null
    # bash replaces only what is after the last colon.
    cut=${words[-1]}
    cut=${cut%"${cut##*[:=]}"}
    COMPREPLY=("${COMPREPLY[@]#"$cut"}")
}
complete -o bashdefault -o nosort -F _limiter limiter
