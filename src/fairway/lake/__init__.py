"""The Spark pipeline: captures and landed messages to tables, and sweeps of simulated runs. All of Spark is here."""
