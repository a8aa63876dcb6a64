# Sourced by kafka.sh and spark.sh: pinned files of Maven's repository, fetched once and compared with their checksums.
# Call fetch_jars as a command of its own: in a list such as `fetch_jars … && …` the shell ignores what fails inside it.

# jars_sum FOLDER: identifies what FOLDER/pom.xml and FOLDER/jars.sha256 pin
jars_sum() {
  cat "$1/pom.xml" "$1/jars.sha256" | sha256sum | cut -c1-12
}

# fetch_jars FOLDER HOME: the files that FOLDER/pom.xml names, into HOME/libs; only fetched if they are missing. The time
# of HOME/.complete tells which of several HOMEs was asked for last.
fetch_jars() {
  local pinned="$1" home="$2" fresh
  if [ -e "$home/.complete" ]; then touch "$home/.complete"; return 0; fi
  mkdir -p "$home"
  fresh="$(mktemp -d "$home/fetch.XXXXXX")"
  mvn -q -B -f "$pinned/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$fresh" >&2
  (cd "$fresh" && sha256sum --quiet --check "$pinned/jars.sha256") >&2
  if [ "$(ls "$fresh" | wc -l)" -ne "$(wc -l < "$pinned/jars.sha256")" ]; then
    echo "Maven brought files that $pinned/jars.sha256 does not list" >&2
    exit 1
  fi
  rm -rf "$home/libs"
  mv "$fresh" "$home/libs"
  touch "$home/.complete"
}
