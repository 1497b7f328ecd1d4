"""`python -m saas_ssl` is `saas`."""

from saas_ssl.commands.app import main

if __name__ == "__main__":
    main()
