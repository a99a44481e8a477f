#!/bin/sh
# For crowdsec-custom-bouncer, which calls it for each decision: bans and unbans by limiter, at run time.
# Copy it to /usr/local/bin/limiter-crowdsec, and name it in /etc/crowdsec/bouncers/crowdsec-custom-bouncer.yaml:
#
#   bin_path: /usr/local/bin/limiter-crowdsec
#
# Its arguments are: add or del, an address or a range, seconds, the scenario, the decision as JSON.

# Decisions about countries and others name no address.
case $2 in
*.*.*.* | *:*) ;;
*) exit 0 ;;
esac

case $1 in
add) exec limiter deny add "$2" --source --for "${3}s" --set crowdsec --reason "$(printf 'crowdsec %.150s' "$4")" ;;
# 4: somebody has taken it off the list already.
del) limiter deny del "$2" --set crowdsec || [ $? -eq 4 ] ;;
esac
